#pragma once

#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/random_tensor.h"

namespace fsdptrain::testing {

// Compares the gradients of sum(weights * fn(inputs)) for every element of every floating input
// with central differences in float64; the weights are random, so that no error cancels.
inline void check_gradient(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                           std::vector<Tensor> inputs, double tolerance = 1e-7) {
  constexpr double kStep = 1e-5;
  for (Tensor& input : inputs) {
    if (is_floating(input.dtype())) {
      REQUIRE(input.dtype() == DType::Float64);
      input.set_requires_grad(true);
    }
  }
  const Tensor y = fn(inputs);
  const Tensor weights = random_tensor(y.shape(), 4242);
  autograd::backward(y, {.grad_output = weights});

  const auto objective = [&] {
    const Tensor value = fn(inputs);
    double total = 0;
    for (std::int64_t i = 0; i < value.numel(); ++i) {
      total += weights.item(i) * value.item(i);
    }
    return total;
  };
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    Tensor& input = inputs[k];
    if (!input.requires_grad()) {
      continue;
    }
    const Tensor grad = input.grad();
    if (input.numel() > 0) {
      REQUIRE(grad.defined());
      REQUIRE(grad.shape() == input.shape());
    }
    for (std::int64_t i = 0; i < input.numel(); ++i) {
      const double value = input.item(i);
      input.set_item(i, value + kStep);
      const double above = objective();
      input.set_item(i, value - kStep);
      const double below = objective();
      input.set_item(i, value);
      const double numeric = (above - below) / (2 * kStep);
      CAPTURE(k);
      CAPTURE(i);
      CHECK(grad.item(i) == doctest::Approx(numeric).epsilon(tolerance).scale(1.0));
    }
  }
}

inline void check_gradient(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x,
                           double tolerance = 1e-7) {
  check_gradient([&](const std::vector<Tensor>& inputs) { return fn(inputs[0]); }, std::vector{x},
                 tolerance);
}

}  // namespace fsdptrain::testing
