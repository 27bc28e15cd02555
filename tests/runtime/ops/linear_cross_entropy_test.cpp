#include "runtime/ops/linear_cross_entropy.h"

#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/meta.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/loss.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"
#include "tests/support/targets.h"

namespace fsdptrain {
namespace {

using ops::HeadForm;
using ops::Reduction;
using testing::check_gradient;
using testing::random_tensor;
using testing::some_targets;
using testing::worst_difference;

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

TEST_SUITE("runtime/ops/linear_cross_entropy") {
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

  TEST_CASE("label smoothing and z-loss of the head are those of cross_entropy, in both forms") {
    for (const std::int64_t tokens : {1, 300}) {
      const Tensor targets = some_targets({tokens}, 37);
      const Tensor hidden_values = random_tensor({tokens, 13}, 1);
      const Tensor weight_values = random_tensor({37, 13}, 2);
      for (const auto& [smoothing, z_loss] : {std::pair(0.1, 0.0), std::pair(0.2, 0.03)}) {
        const Tensor hidden = hidden_values.detach().set_requires_grad(true);
        const Tensor weight = weight_values.detach().set_requires_grad(true);
        const Tensor composed = ops::cross_entropy(
            ops::linear(hidden, weight), targets,
            {.reduction = Reduction::Sum, .label_smoothing = smoothing, .z_loss = z_loss});
        autograd::backward(composed);
        for (const HeadForm form : {HeadForm::Recompute, HeadForm::GradientInForward}) {
          CAPTURE(static_cast<int>(form));
          const Tensor x = hidden_values.detach().set_requires_grad(true);
          const Tensor w = weight_values.detach().set_requires_grad(true);
          const Tensor loss = ops::linear_cross_entropy(
              x, w, targets, {.label_smoothing = smoothing, .z_loss = z_loss, .form = form});
          autograd::backward(loss);
          CHECK(loss.item() == doctest::Approx(composed.item()).epsilon(1e-12));
          CHECK(worst_difference(x.grad(), hidden.grad().to_vector()) <= 1e-12);
          CHECK(worst_difference(w.grad(), weight.grad().to_vector()) <= 1e-12);
        }
      }
    }
    CHECK_THROWS_WITH_AS(
        ops::linear_cross_entropy(Tensor::zeros({2, 3}), Tensor::zeros({5, 3}),
                                  Tensor::zeros({2}, DType::Int64), {.label_smoothing = 1}),
        doctest::Contains("linear_cross_entropy: label_smoothing must be in [0, 1), got 1"),
        ConfigError);
  }

  TEST_CASE("the gradient of linear_cross_entropy matches finite differences") {
    const Tensor targets = some_targets({2, 3}, 7);
    for (const double extra : {0.0, 0.2}) {
      check_gradient(
          [&](const std::vector<Tensor>& inputs) {
            return ops::linear_cross_entropy(
                inputs[0], inputs[1], targets,
                {.loss_scale = 0.3, .label_smoothing = extra, .z_loss = extra});
          },
          {random_tensor({2, 3, 5}, 1), random_tensor({7, 5}, 2)});
    }
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
      // Nor does it take the gradient of a later forward.
      const Tensor third = forward();
      CHECK_THROWS_WITH_AS(autograd::backward(second), doctest::Contains("is gone"), AutogradError);
      autograd::backward(third);
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
  TEST_CASE("the bits of linear_cross_entropy do not depend on threads or runs") {
    for (const HeadForm form : {HeadForm::Recompute, HeadForm::GradientInForward}) {
      testing::check_same_bits([form] {
        const Tensor hidden =
            random_tensor({523, 7}, 1, 1.0, DType::Float32).set_requires_grad(true);
        const Tensor weight =
            random_tensor({37, 7}, 2, 1.0, DType::Float32).set_requires_grad(true);
        const Tensor loss =
            ops::linear_cross_entropy(hidden, weight, some_targets({523}, 37), {.form = form});
        autograd::backward(loss);
        return std::vector<Tensor>{loss.detach(), hidden.grad(), weight.grad()};
      });
    }
  }

  TEST_CASE("the head notices targets changed by hand between forward and backward") {
    const Tensor x = random_tensor({6, 5}, 1).set_requires_grad(true);
    const Tensor targets = some_targets({6}, 5);
    const Tensor y =
        ops::linear_cross_entropy(x, Tensor::full({5, 5}, 0.5, DType::Float64), targets);
    CHECK(targets.values<std::int64_t>().size() == 6);
    CHECK(targets.bytes().size() == 48);
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    targets.mutable_values<std::int64_t>()[0] = 1;
    CHECK_THROWS_WITH_AS(
        autograd::backward(y),
        doctest::Contains("a tensor of shape [6] saved for backward was changed in place"),
        AutogradError);
  }

  TEST_CASE("operands of linear_cross_entropy that do not fit are refused by name") {
    const auto targets_with = [](double value) {
      Tensor targets = Tensor::zeros({2, 3}, DType::Int64);
      targets.set_item(4, value);
      return targets;
    };
    CHECK_THROWS_WITH_AS(
        ops::linear_cross_entropy(Tensor::zeros({2, 3, 4}), Tensor::zeros({5, 4}), targets_with(7)),
        doctest::Contains("linear_cross_entropy: the target at position 4 must be in [0, 5)"),
        ShapeError);
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

  TEST_CASE("linear_cross_entropy allocates on meta what it does on the CPU") {
    testing::check_same_memory([](Device device) {
      for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
        for (const HeadForm form : {HeadForm::Recompute, HeadForm::GradientInForward}) {
          const Tensor hidden = Tensor::zeros({300, 5}, dtype, device).set_requires_grad(true);
          const Tensor weight = Tensor::zeros({7, 5}, dtype, device).set_requires_grad(true);
          const Tensor targets = Tensor::zeros({300}, DType::Int64, device);
          autograd::backward(ops::linear_cross_entropy(hidden, weight, targets, {.form = form}));
        }
      }
    });
  }

  TEST_CASE("a gradient computed in forward counts as one of its parameter") {
    RankContext context({.threads = 1, .isa = {}, .log_prefix = {}});
    const ContextGuard bound(context);
    const Tensor weight = Tensor::zeros({7, 5}).set_requires_grad(true);
    const Tensor loss =
        ops::linear_cross_entropy(Tensor::zeros({3, 5}), weight, Tensor::zeros({3}, DType::Int64),
                                  {.form = HeadForm::GradientInForward});
    CHECK(context.allocator(Device::cpu()).counters().live_of(MemoryCategory::Gradient) ==
          static_cast<std::int64_t>(size_class(35 * sizeof(float))));
  }
}

}  // namespace
}  // namespace fsdptrain
