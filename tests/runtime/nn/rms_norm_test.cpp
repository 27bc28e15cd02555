#include "runtime/nn/rms_norm.h"

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "tests/support/flat_parameters.h"
#include "tests/support/random_tensor.h"

namespace fsdptrain {

TEST_SUITE("runtime/nn/rms_norm") {
  TEST_CASE("RmsNorm has a weight of ones without decay, and norms by it") {
    nn::RmsNorm norm({.features = 5, .eps = 1e-3});
    REQUIRE(norm.parameters().size() == 1);
    CHECK(norm.parameters()[0].name == "weight");
    CHECK_FALSE(norm.parameters()[0].spec.decay);
    testing::FlatParameters owner(norm, {});
    CHECK(owner.find("weight").values.to_vector() == std::vector<double>(5, 1));
    for (std::int64_t i = 0; i < 5; ++i) {
      Tensor(owner.find("weight").values).set_item(i, 1 + static_cast<double>(i));
    }
    owner.bump_epoch();
    const Tensor weight = owner.find("weight").values.detach();
    const Tensor x = testing::random_tensor({3, 5}, 1, 1, DType::Float32);
    CHECK(norm(x).to_vector() == ops::rms_norm(x, weight, 1e-3).to_vector());
  }

  TEST_CASE("the sum of RmsNorm goes through the hooks, its gradient into the slot") {
    nn::RmsNorm norm({.features = 5});
    testing::FlatParameters owner(norm, {});
    int entered = 0;
    norm.add_hooks(
        {.pre_forward =
             [&](nn::Module::Tensors& inputs) { entered += static_cast<int>(inputs.size()); },
         .post_forward = [](nn::Module::Tensors&) {}});
    const Tensor x = testing::random_tensor({3, 5}, 1, 1, DType::Float32);
    const Tensor residual = testing::random_tensor({3, 5}, 2, 1, DType::Float32);
    const auto [sum, normalized] = norm.add(x, residual);
    CHECK(entered == 2);
    const auto expected = ops::add_rms_norm(x, residual, Tensor::full({5}, 1), 1e-5);
    CHECK(sum.to_vector() == expected.sum.to_vector());
    CHECK(normalized.to_vector() == expected.normalized.to_vector());
    autograd::backward(normalized, {.grad_output = normalized.detach()});
    double squares = 0;
    for (std::int64_t row = 0; row < 3; ++row) {
      squares += normalized.item(row * 5) * normalized.item(row * 5);
    }
    CHECK(owner.find("weight").gradient.item(0) == doctest::Approx(squares));
  }
}

}  // namespace fsdptrain
