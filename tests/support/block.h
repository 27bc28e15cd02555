#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/dropout.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/view.h"
#include "tests/support/grad_check.h"
#include "tests/support/owners.h"

namespace fsdptrain::testing {

inline std::vector<double> random_values(std::int64_t numel, std::uint64_t seed) {
  return random_tensor({numel}, seed).to_vector();
}

// A transformer block in little: all kinds of saved tensors, with parameters that an owner keeps.
template <class Owner>
struct Block {
  Owner owner{200};
  Tensor scale = owner.add("ln.weight", {4}, random_values(4, 1));
  Tensor shift = owner.add("ln.bias", {4}, random_values(4, 2));
  Tensor qkv = owner.add("qkv.weight", {12, 4}, random_values(48, 3));
  Tensor up = owner.add("up.weight", {8, 4}, random_values(32, 4));
  Tensor bias = owner.add("up.bias", {8}, random_values(8, 5));
  Tensor down = owner.add("down.weight", {4, 8}, random_values(32, 6));
  std::vector<Tensor> all = {scale, shift, qkv, up, bias, down};

  // x [2, 3, 4] to the same shape.
  Tensor forward(const Tensor& x) {
    return owner.run([&] {
      const Tensor normed = ops::layer_norm(x, scale, shift, 1e-5);
      const std::int64_t sizes[] = {4, 4, 4};
      std::vector<Tensor> parts = ops::split(ops::linear(normed, qkv), sizes, -1);
      for (Tensor& part : parts) {
        part = ops::reshape(part, {2, 3, 2, 2});
      }
      const Tensor heads = ops::attention(parts[0], parts[1], parts[2]).out;
      const Tensor h = ops::add(x, ops::dropout(ops::reshape(heads, {2, 3, 4}), 0.25, {7}));
      return ops::add(h,
                      ops::linear(ops::gelu(ops::linear(h, up, bias), ops::GeluForm::Tanh), down));
    });
  }

  std::function<Tensor(const Tensor&)> body() {
    return [this](const Tensor& x) { return forward(x); };
  }

  std::vector<double> gradients(const Tensor& x) const {
    std::vector<double> values = x.grad().to_vector();
    for (const Tensor& parameter : all) {
      const std::vector<double> more = parameter.grad().to_vector();
      values.insert(values.end(), more.begin(), more.end());
    }
    return values;
  }
};

}  // namespace fsdptrain::testing
