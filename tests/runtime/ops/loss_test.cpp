#include "runtime/ops/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/view.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"
#include "tests/support/targets.h"

namespace fsdptrain {
namespace {

using ops::Reduction;
using testing::check_gradient;
using testing::random_tensor;
using testing::some_targets;
using testing::worst_difference;

struct Values {
  double loss = 0;
  std::vector<double> dlogits;
};

struct Extras {
  double label_smoothing = 0;
  double z_loss = 0;
};

// The sum of the tokens' losses and its gradient, by the formula: the cross entropy with the
// smoothed distribution, one class after another, and the square of the log-sum-exp.
Values by_formula(const Tensor& logits, const Tensor& targets, double factor,
                  const Extras& extras = {}) {
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
    values.loss += factor * extras.z_loss * log_sum * log_sum;
    for (std::size_t i = row * classes; i < (row + 1) * classes; ++i) {
      const double wanted = (i == chosen ? 1 - extras.label_smoothing : 0) +
                            extras.label_smoothing / static_cast<double>(classes);
      const double probability = std::exp(x[i] - log_sum);
      values.loss += wanted == 0 ? 0 : factor * wanted * (log_sum - x[i]);
      values.dlogits[i] =
          factor * (probability - wanted + 2 * extras.z_loss * log_sum * probability);
    }
  }
  return values;
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

  TEST_CASE("label smoothing and z-loss follow the formula, in every variant and dtype") {
    struct Case {
      DType dtype;
      double tolerance;
    };
    testing::for_each_isa([] {
      for (const auto& [dtype, tolerance] :
           {Case{DType::Float64, 1e-13}, Case{DType::Float32, 4e-6}, Case{DType::BFloat16, 8e-3}}) {
        for (const std::int64_t classes : {1, 2, 17, 1024, 1031}) {
          for (const Extras& extras : {Extras{0.1, 0}, Extras{0, 0.01}, Extras{0.3, 0.02}}) {
            CAPTURE(name_of(dtype));
            CAPTURE(classes);
            CAPTURE(extras.label_smoothing);
            CAPTURE(extras.z_loss);
            const Tensor logits =
                random_tensor({7, classes}, 1, 9.0, dtype).set_requires_grad(true);
            const Tensor targets = some_targets({7}, classes);
            const Tensor loss = ops::cross_entropy(logits, targets,
                                                   {.reduction = Reduction::Sum,
                                                    .label_smoothing = extras.label_smoothing,
                                                    .z_loss = extras.z_loss});
            autograd::backward(loss);
            const Values expected = by_formula(logits, targets, 1, extras);
            CHECK(loss.item() ==
                  doctest::Approx(expected.loss).epsilon(dtype == DType::Float64 ? 1e-13 : 2e-6));
            CHECK(worst_difference(logits.grad(), expected.dlogits) <= tolerance);
          }
        }
      }
    });
  }

  TEST_CASE(
      "smoothed and z-losses count for nothing where targets are ignored, means divide them") {
    const ops::CrossEntropyOptions options{.label_smoothing = 0.2, .z_loss = 0.1};
    const Tensor logits = random_tensor({2, 4, 5}, 1).set_requires_grad(true);
    const Tensor targets = some_targets({2, 4}, 5);  // 1 of 8 is ignored
    const Tensor loss = ops::cross_entropy(logits, targets, options);
    autograd::backward(loss);
    const Values expected = by_formula(logits, targets, 1.0 / 7, {0.2, 0.1});
    CHECK(loss.item() == doctest::Approx(expected.loss).epsilon(1e-13));
    CHECK(worst_difference(logits.grad(), expected.dlogits) < 1e-15);
    check_gradient([&](const Tensor& x) { return ops::cross_entropy(x, targets, options); },
                   random_tensor({2, 4, 5}, 3, 3.0));
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

  TEST_CASE("the bits of cross_entropy do not depend on threads or runs") {
    testing::check_same_bits([] {
      const Tensor logits =
          random_tensor({523, 37}, 1, 1.0, DType::Float32).set_requires_grad(true);
      const Tensor loss = ops::cross_entropy(logits, some_targets({523}, 37));
      autograd::backward(loss);
      const Tensor with_all = ops::cross_entropy(logits.detach(), some_targets({523}, 37),
                                                 {.label_smoothing = 0.1, .z_loss = 0.01});
      return std::vector<Tensor>{loss.detach(), logits.grad(), with_all};
    });
  }

  TEST_CASE("targets changed by hand between forward and backward are noticed") {
    const Tensor x = random_tensor({6, 5}, 1).set_requires_grad(true);
    const Tensor targets = some_targets({6}, 5);
    const Tensor y = ops::cross_entropy(x, targets);
    CHECK(targets.values<std::int64_t>().size() == 6);
    CHECK(targets.bytes().size() == 48);
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    targets.mutable_values<std::int64_t>()[0] = 1;
    CHECK_THROWS_WITH_AS(
        autograd::backward(y),
        doctest::Contains("a tensor of shape [6] saved for backward was changed in place"),
        AutogradError);
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
        ops::cross_entropy(logits, Tensor::full({2, 3}, kIgnoredTarget, DType::Int64)),
        doctest::Contains("cross_entropy: the mean needs a target that counts, got 6 of which all "
                          "are -100"),
        DataError);
    CHECK_THROWS_WITH_AS(
        ops::cross_entropy(logits, Tensor::zeros({2, 4}, DType::Int64)),
        doctest::Contains(
            "cross_entropy: targets of shape [2, 4] do not fit an input of shape [2, 3, 5]"),
        ShapeError);
    for (const double smoothing : {-0.1, 1.0, std::nan("")}) {
      CHECK_THROWS_WITH_AS(
          ops::cross_entropy(logits, targets_with(0), {.label_smoothing = smoothing}),
          doctest::Contains("cross_entropy: label_smoothing must be in [0, 1), got"), ConfigError);
    }
    CHECK_THROWS_WITH_AS(
        ops::cross_entropy(logits, targets_with(0), {.z_loss = -1}),
        doctest::Contains("cross_entropy: z_loss must be finite and not negative, got -1"),
        ConfigError);
    CHECK_THROWS_WITH_AS(ops::cross_entropy(logits, Tensor::zeros({2, 3}, DType::Int32)),
                         doctest::Contains("cross_entropy: targets must be int64, got int32"),
                         DTypeError);
  }

  TEST_CASE("cross_entropy allocates on meta what it does on the CPU") {
    testing::check_same_memory([](Device device) {
      for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
        const Tensor logits = Tensor::zeros({300, 7}, dtype, device).set_requires_grad(true);
        autograd::backward(ops::cross_entropy(logits, Tensor::zeros({300}, DType::Int64, device)));
      }
    });
  }
}

}  // namespace
}  // namespace fsdptrain
