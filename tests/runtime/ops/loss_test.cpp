#include "runtime/ops/loss.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/meta.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/linear_cross_entropy.h"
#include "runtime/ops/view.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {
namespace {

using ops::HeadForm;
using ops::Reduction;
using testing::check_gradient;
using testing::random_tensor;

// Every fifth target is ignored; the first and last class occur.
Tensor some_targets(const Shape& shape, std::int64_t classes) {
  Tensor targets = Tensor::empty(shape, DType::Int64);
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    const std::int64_t target = i == 0 ? classes - 1 : (i * 7919) % classes;
    targets.set_item(i, static_cast<double>(i % 5 == 3 ? kIgnoredTarget : target));
  }
  return targets;
}

struct Values {
  double loss = 0;
  std::vector<double> dlogits;
};

// The sum of -log softmax(logits)[target] and its gradient, by the formula.
Values by_formula(const Tensor& logits, const Tensor& targets, double factor) {
  const std::vector<double> x = logits.to_vector();
  const auto classes = static_cast<std::size_t>(logits.size(-1));
  Values values;
  values.dlogits.resize(x.size());
  for (std::size_t row = 0; row * classes < x.size(); ++row) {
    const double target = targets.item(static_cast<std::int64_t>(row));
    if (target == kIgnoredTarget) {
      continue;
    }
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row * classes);
    const double largest = *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(classes));
    double sum = 0;
    for (std::size_t i = 0; i < classes; ++i) {
      sum += std::exp(x[row * classes + i] - largest);
    }
    const double log_sum = largest + std::log(sum);
    const auto chosen = row * classes + static_cast<std::size_t>(target);
    values.loss += factor * (log_sum - x[chosen]);
    for (std::size_t i = 0; i < classes; ++i) {
      values.dlogits[row * classes + i] = factor * std::exp(x[row * classes + i] - log_sum);
    }
    values.dlogits[chosen] -= factor;
  }
  return values;
}

double worst_difference(const Tensor& actual, const std::vector<double>& expected) {
  const std::vector<double> values = actual.to_vector();
  REQUIRE(values.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - expected[i]);
    worst = difference <= worst ? worst : difference;
  }
  return worst;
}

// A parameter whose gradient goes to a slot of dtype `reduce`, as its owner would place it.
struct Slotted {
  Tensor weight;
  std::shared_ptr<autograd::GradientSlot> slot;
};
Slotted with_slot(const Tensor& values, DType reduce) {
  Slotted slotted{values.detach(), std::make_shared<autograd::GradientSlot>()};
  slotted.weight.set_requires_grad(true);
  slotted.slot->buffer = Tensor::full(values.shape(), 77, reduce);
  slotted.weight.autograd_meta()->slot =
      autograd::SlotView{slotted.slot->buffer, {slotted.slot}, true};
  return slotted;
}

TEST_SUITE("runtime/ops/loss") {
  TEST_CASE("cross_entropy and its gradient follow the formula, in every variant and dtype") {
    struct Case {
      DType dtype;
      double tolerance;
    };
    for (const Isa isa : supported_isas()) {
      CAPTURE(name_of(isa));
      RankContext context({.threads = 2, .isa = isa, .log_prefix = {}});
      const ContextGuard bound(context);
      for (const auto& [dtype, tolerance] :
           {Case{DType::Float64, 1e-13}, Case{DType::Float32, 1e-6}, Case{DType::BFloat16, 4e-3}}) {
        CAPTURE(name_of(dtype));
        for (const std::int64_t classes : {1, 2, 16, 17, 1024, 1031, 4099}) {
          CAPTURE(classes);
          Tensor logits = random_tensor({7, classes}, 1, 9.0, dtype).set_requires_grad(true);
          const Tensor targets = some_targets({7}, classes);
          const Tensor loss = ops::cross_entropy(logits, targets, {.reduction = Reduction::Sum});
          CHECK(loss.dims() == 0);
          CHECK(loss.dtype() == (dtype == DType::Float64 ? DType::Float64 : DType::Float32));
          autograd::backward(loss);
          const Values expected = by_formula(logits, targets, 1);
          CHECK(loss.item() ==
                doctest::Approx(expected.loss).epsilon(dtype == DType::Float64 ? 1e-13 : 1e-6));
          CHECK(worst_difference(logits.grad(), expected.dlogits) <= tolerance);
        }
      }
    }
  }

  TEST_CASE("the mean is over the targets that count") {
    Tensor logits = random_tensor({2, 4, 5}, 1).set_requires_grad(true);
    const Tensor targets = some_targets({2, 4}, 5);  // 1 of 8 is ignored
    const Tensor loss = ops::cross_entropy(logits, targets);
    autograd::backward(loss);
    const Values expected = by_formula(logits, targets, 1.0 / 7);
    CHECK(loss.item() == doctest::Approx(expected.loss).epsilon(1e-13));
    CHECK(worst_difference(logits.grad(), expected.dlogits) < 1e-15);
    CHECK(logits.grad().shape() == Shape{2, 4, 5});
  }

  TEST_CASE("the gradient of cross_entropy matches finite differences") {
    const Tensor targets = some_targets({6}, 11);
    for (const Reduction reduction : {Reduction::Sum, Reduction::Mean}) {
      check_gradient(
          [&](const Tensor& logits) {
            return ops::cross_entropy(logits, targets, {.reduction = reduction});
          },
          random_tensor({6, 11}, 3, 3.0));
    }
  }

  TEST_CASE("logits of any layout and size give the loss of their values") {
    const Tensor logits = random_tensor({11, 6}, 3);
    const Tensor targets = some_targets({6}, 11);
    check_gradient(
        [&](const Tensor& x) { return ops::cross_entropy(ops::transpose(x, 0, 1), targets); },
        logits);
    const ops::CrossEntropyOptions sum{.reduction = Reduction::Sum};
    CHECK(ops::cross_entropy(Tensor::empty({0, 3}), Tensor::empty({0}, DType::Int64), sum).item() ==
          0);
    const Tensor huge = Tensor::of({1e4, -1e4, 0.0}, DType::Float64);
    CHECK(
        ops::cross_entropy(ops::reshape(huge, {1, 3}), Tensor::full({1}, 1, DType::Int64)).item() ==
        2e4);
    const double infinity = std::numeric_limits<double>::infinity();
    const Tensor masked = Tensor::of({0.0, -infinity, 0.0}, DType::Float64);
    CHECK(
        ops::cross_entropy(ops::reshape(masked, {1, 3}), Tensor::zeros({1}, DType::Int64)).item() ==
        doctest::Approx(std::log(2.0)).epsilon(1e-15));
  }

  TEST_CASE("the bits of the losses do not depend on threads or runs") {
    std::vector<std::vector<double>> results;
    for (const int threads : {1, 2, 2, 3, 5}) {
      RankContext context({.threads = threads, .isa = {}, .log_prefix = {}});
      const ContextGuard bound(context);
      Tensor hidden = random_tensor({523, 7}, 1, 1.0, DType::Float32).set_requires_grad(true);
      Tensor weight = random_tensor({37, 7}, 2, 1.0, DType::Float32).set_requires_grad(true);
      const Tensor targets = some_targets({523}, 37);
      const Tensor composed = ops::cross_entropy(ops::linear(hidden, weight), targets);
      autograd::backward(composed);
      const Tensor fused =
          ops::linear_cross_entropy(hidden, weight, targets, {.form = HeadForm::GradientInForward});
      autograd::backward(fused);
      std::vector<double> all{composed.item(), fused.item()};
      for (const Tensor& more : {hidden.grad(), weight.grad()}) {
        const std::vector<double> values = more.to_vector();
        all.insert(all.end(), values.begin(), values.end());
      }
      results.push_back(all);
    }
    for (const auto& result : results) {
      CHECK(result == results.front());
    }
  }

  TEST_CASE("both forms of linear_cross_entropy give the composition of linear and cross_entropy") {
    struct Case {
      DType dtype;
      double tolerance;  // of sums over 523 tokens
    };
    for (const auto& [dtype, tolerance] :
         {Case{DType::Float64, 1e-12}, Case{DType::Float32, 2e-4}, Case{DType::BFloat16, 0.15}}) {
      CAPTURE(name_of(dtype));
      for (const std::int64_t tokens : {1, 255, 256, 257, 523}) {
        CAPTURE(tokens);
        const Tensor hidden_values = random_tensor({tokens, 13}, 1, 1.0, dtype);
        const Tensor weight_values = random_tensor({37, 13}, 2, 1.0, dtype);
        const Tensor targets = some_targets({tokens}, 37);
        Tensor hidden = hidden_values.detach().set_requires_grad(true);
        Tensor weight = weight_values.detach().set_requires_grad(true);
        const Tensor composed =
            ops::cross_entropy(ops::linear(hidden, weight), targets, {.reduction = Reduction::Sum});
        autograd::backward(composed, {.grad_output = Tensor::full(Shape{}, 0.5, composed.dtype())});
        for (const HeadForm form : {HeadForm::Recompute, HeadForm::GradientInForward}) {
          CAPTURE(static_cast<int>(form));
          Tensor x = hidden_values.detach().set_requires_grad(true);
          Tensor w = weight_values.detach().set_requires_grad(true);
          const Tensor loss =
              ops::linear_cross_entropy(x, w, targets, {.loss_scale = 0.5, .form = form});
          CHECK(loss.dims() == 0);
          CHECK(loss.item() == doctest::Approx(0.5 * composed.item())
                                   .epsilon(dtype == DType::Float64 ? 1e-12 : 1e-5));
          autograd::backward(loss);
          CHECK(x.grad().dtype() == dtype);
          CHECK(w.grad().dtype() == dtype);
          CHECK(worst_difference(x.grad(), hidden.grad().to_vector()) <= tolerance);
          CHECK(worst_difference(w.grad(), weight.grad().to_vector()) <= tolerance);
        }
      }
    }
  }

  TEST_CASE("the gradient of linear_cross_entropy matches finite differences") {
    const Tensor targets = some_targets({2, 3}, 7);
    check_gradient(
        [&](const std::vector<Tensor>& inputs) {
          return ops::linear_cross_entropy(inputs[0], inputs[1], targets, {.loss_scale = 0.3});
        },
        {random_tensor({2, 3, 5}, 1), random_tensor({7, 5}, 2)});
  }

  TEST_CASE("the weight's gradient goes to its slot: the first write replaces, later ones add") {
    const Tensor targets = some_targets({300}, 7);
    for (const HeadForm form : {HeadForm::Recompute, HeadForm::GradientInForward}) {
      CAPTURE(static_cast<int>(form));
      for (const DType dtype : {DType::Float32, DType::BFloat16}) {
        CAPTURE(name_of(dtype));
        const Tensor values = random_tensor({7, 5}, 2, 1.0, dtype);
        Tensor hidden = random_tensor({300, 5}, 1, 1.0, dtype).set_requires_grad(true);
        const Slotted head = with_slot(values, DType::Float32);
        const auto run = [&] {
          const Tensor loss =
              ops::linear_cross_entropy(hidden, head.weight, targets, {.form = form});
          if (form == HeadForm::GradientInForward) {
            CHECK(head.slot->written);
          }
          const autograd::BackwardStats stats = autograd::backward(loss);
          CHECK(stats.slot_elements_added == 0);
        };
        CHECK_FALSE(head.slot->written);
        run();
        const std::vector<double> once = head.slot->buffer.to_vector();
        Tensor plain = values.detach().set_requires_grad(true);
        autograd::backward(ops::linear_cross_entropy(hidden.detach(), plain, targets));
        CHECK(worst_difference(plain.grad(), once) <= (dtype == DType::Float32 ? 1e-4 : 0.2));
        run();
        std::vector<double> twice = once;
        for (double& value : twice) {
          value *= 2;
        }
        CHECK(worst_difference(head.slot->buffer, twice) <= 1e-4);
      }
    }
  }

  TEST_CASE("without tokens the loss and every gradient are 0") {
    for (const HeadForm form : {HeadForm::Recompute, HeadForm::GradientInForward}) {
      Tensor hidden = Tensor::empty({0, 5}).set_requires_grad(true);
      const Slotted head = with_slot(random_tensor({7, 5}, 2, 1.0, DType::Float32), DType::Float32);
      const Tensor loss = ops::linear_cross_entropy(
          hidden, head.weight, Tensor::empty({0}, DType::Int64), {.form = form});
      CHECK(loss.item() == 0);
      autograd::backward(loss);
      CHECK(head.slot->buffer.to_vector() == std::vector<double>(35));
    }
  }

  TEST_CASE("without grad there is only the loss") {
    const Tensor targets = some_targets({6}, 7);
    Tensor hidden = random_tensor({6, 5}, 1);
    const Slotted head = with_slot(random_tensor({7, 5}, 2), DType::Float64);
    const ops::LinearCrossEntropyOptions options{.form = HeadForm::GradientInForward};
    const autograd::NoGradGuard no_grad;
    const Tensor loss = ops::linear_cross_entropy(hidden, head.weight, targets, options);
    CHECK_FALSE(loss.requires_grad());
    CHECK_FALSE(head.slot->written);
    CHECK(ops::linear_cross_entropy(hidden, head.weight, targets).item() == loss.item());
  }

  TEST_CASE("gradient in forward refuses what it cannot do") {
    const Tensor targets = some_targets({6}, 7);
    Tensor hidden = random_tensor({6, 5}, 1).set_requires_grad(true);
    for (const bool in_slot : {false, true}) {
      CAPTURE(in_slot);
      Tensor weight = random_tensor({7, 5}, 2).set_requires_grad(true);
      if (in_slot) {
        weight = with_slot(weight, DType::Float64).weight;
      }
      const auto forward = [&] {
        return ops::linear_cross_entropy(hidden, weight, targets,
                                         {.form = HeadForm::GradientInForward});
      };
      const Tensor first = forward();
      CHECK_THROWS_WITH_AS(
          forward(),
          doctest::Contains("linear_cross_entropy: with its gradient in forward, the "
                            "weight of shape [7, 5] must see the backward of one "
                            "forward, or zero_grad(), before the next forward"),
          AutogradError);
      CHECK_THROWS_WITH_AS(
          autograd::backward(first, {.grad_output = Tensor::full(Shape{}, 2, DType::Float64),
                                     .retain_graph = true}),
          doctest::Contains("the gradient of the loss must be 1, got 2"), AutogradError);
      autograd::backward(first, {.grad_output = {}, .retain_graph = true});
      CHECK_THROWS_WITH_AS(autograd::backward(first), doctest::Contains("one backward is all"),
                           AutogradError);
      const Tensor second = forward();
      weight.zero_grad();
      CHECK_THROWS_WITH_AS(autograd::backward(second), doctest::Contains("is gone"), AutogradError);
      autograd::backward(forward());
    }
  }

  TEST_CASE("a forward that fails takes back the gradient it had begun") {
    const Tensor targets = some_targets({6}, 7);
    for (const bool in_slot : {false, true}) {
      CAPTURE(in_slot);
      Tensor weight = random_tensor({7, 5}, 2).set_requires_grad(true);
      if (in_slot) {
        weight = with_slot(weight, DType::Float64).weight;
      }
      const auto run = [&](bool without_bytes) {
        Tensor hidden = random_tensor({6, 5}, 1).set_requires_grad(true);
        if (without_bytes) {
          hidden.storage()->release();
        }
        autograd::backward(ops::linear_cross_entropy(hidden, weight, targets,
                                                     {.form = HeadForm::GradientInForward}));
        return weight.grad().to_vector();
      };
      CHECK_THROWS_AS(run(true), StorageError);
      CHECK_FALSE(weight.grad().defined());
      const auto first = run(false);
      weight.zero_grad();
      CHECK(run(false) == first);
    }
  }

  TEST_CASE("targets changed by hand between forward and backward are noticed") {
    const auto check_noticed = [](const std::function<Tensor(const Tensor&, const Tensor&)>& loss) {
      const Tensor x = random_tensor({6, 5}, 1).set_requires_grad(true);
      const Tensor targets = some_targets({6}, 5);
      const Tensor y = loss(x, targets);
      CHECK(targets.values<std::int64_t>().size() == 6);
      CHECK(targets.bytes().size() == 48);
      autograd::backward(y, {.grad_output = {}, .retain_graph = true});
      targets.mutable_values<std::int64_t>()[0] = 1;
      CHECK_THROWS_WITH_AS(
          autograd::backward(y),
          doctest::Contains("a tensor of shape [6] saved for backward was changed in place"),
          AutogradError);
    };
    check_noticed([](const Tensor& x, const Tensor& t) { return ops::cross_entropy(x, t); });
    check_noticed([](const Tensor& x, const Tensor& t) {
      return ops::linear_cross_entropy(x, Tensor::full({5, 5}, 0.5, DType::Float64), t);
    });
  }

  TEST_CASE("targets and shapes that do not fit are refused by name") {
    const Tensor logits = Tensor::zeros({2, 3, 5});
    const auto targets_with = [](double value) {
      Tensor targets = Tensor::zeros({2, 3}, DType::Int64);
      targets.set_item(4, value);
      return targets;
    };
    CHECK_THROWS_WITH_AS(
        ops::cross_entropy(logits, targets_with(5)),
        doctest::Contains(
            "cross_entropy: the target at position 4 must be in [0, 5) or -100, got 5"),
        ShapeError);
    CHECK_THROWS_WITH_AS(ops::cross_entropy(logits, targets_with(-1)),
                         doctest::Contains("position 4 must be in [0, 5) or -100, got -1"),
                         ShapeError);
    CHECK_NOTHROW(ops::cross_entropy(logits, targets_with(-1), {.ignore_index = -1}));
    CHECK_THROWS_WITH_AS(
        ops::linear_cross_entropy(Tensor::zeros({2, 3, 4}), Tensor::zeros({5, 4}), targets_with(7)),
        doctest::Contains("linear_cross_entropy: the target at position 4 must be in [0, 5)"),
        ShapeError);
    CHECK_THROWS_WITH_AS(
        ops::cross_entropy(logits, Tensor::full({2, 3}, kIgnoredTarget, DType::Int64)),
        doctest::Contains("cross_entropy: the mean needs a target that counts, got 6 of which all "
                          "are -100"),
        DataError);
    CHECK_THROWS_WITH_AS(
        ops::cross_entropy(logits, Tensor::zeros({2, 4}, DType::Int64)),
        doctest::Contains(
            "cross_entropy: targets of shape [2, 4] do not fit an input of shape [2, 3, 5]"),
        ShapeError);
    CHECK_THROWS_WITH_AS(ops::cross_entropy(logits, Tensor::zeros({2, 3}, DType::Int32)),
                         doctest::Contains("cross_entropy: targets must be int64, got int32"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(
        ops::linear_cross_entropy(Tensor::zeros({2, 3, 4}), Tensor::zeros({4, 5}), targets_with(0)),
        doctest::Contains("linear_cross_entropy: hidden of shape [2, 3, 4] does not fit weight "
                          "[classes, features] of shape [4, 5]"),
        ShapeError);
    CHECK_THROWS_AS(
        ops::linear_cross_entropy(Tensor::zeros({2, 3, 4}), Tensor::zeros({5, 4}, DType::Float64),
                                  targets_with(0)),
        DTypeError);
  }

  TEST_CASE("the losses allocate on meta what they do on the CPU") {
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
      for (const int form : {0, 1, 2}) {
        CAPTURE(form);
        const auto counters_on = [&](Device device) {
          RankContext context({.threads = 3, .isa = {}, .log_prefix = {}});
          const ContextGuard bound(context);
          {
            Tensor hidden = Tensor::zeros({300, 5}, dtype, device).set_requires_grad(true);
            Tensor weight = Tensor::zeros({7, 5}, dtype, device).set_requires_grad(true);
            const Tensor targets = Tensor::zeros({300}, DType::Int64, device);
            const Tensor loss =
                form == 0
                    ? ops::cross_entropy(ops::linear(hidden, weight), targets)
                    : ops::linear_cross_entropy(
                          hidden, weight, targets,
                          {.form = form == 1 ? HeadForm::Recompute : HeadForm::GradientInForward});
            autograd::backward(loss);
          }
          return context.allocator(device).counters();
        };
        const MemoryCounters meta = counters_on(Device::meta());
        CHECK(meta == counters_on(Device::cpu()));
        CHECK(meta.live_total == 0);
      }
    }
  }

  TEST_CASE("linear_cross_entropy holds one chunk of logits at a time") {
    RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
    const ContextGuard bound(context);
    for (const HeadForm form : {HeadForm::Recompute, HeadForm::GradientInForward}) {
      Tensor hidden =
          Tensor::zeros({1024, 8}, DType::Float32, Device::meta()).set_requires_grad(true);
      Tensor weight =
          Tensor::zeros({5000, 8}, DType::Float32, Device::meta()).set_requires_grad(true);
      const Tensor targets = Tensor::zeros({1024}, DType::Int64, Device::meta());
      context.allocator(Device::meta()).reset_peaks();
      autograd::backward(ops::linear_cross_entropy(hidden, weight, targets, {.form = form}));
      CHECK(context.allocator(Device::meta()).counters().peak_of(MemoryCategory::Workspace) ==
            static_cast<std::int64_t>(size_class(256 * 5000 * sizeof(float))));
    }
  }
}

}  // namespace
}  // namespace fsdptrain
