#include "runtime/base/kernel_profile.h"

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/linear_cross_entropy.h"
#include "runtime/ops/matmul.h"

using namespace fsdptrain;

TEST_SUITE("base/kernel_profile") {
  TEST_CASE("the outermost scope takes the time of those in it") {
    KernelProfile profile;
    {
      const ProfileScope outer(&profile, "outer");
      const ProfileScope inner(&profile, "inner");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    REQUIRE(profile.entries().size() == 1);
    CHECK(profile.entries().at("outer").seconds >= 2e-3);
    CHECK(profile.entries().at("outer").scopes == 1);
    CHECK(profile.num_scopes() == 2);
    profile.reset();
    CHECK(profile.entries().empty());
    CHECK(profile.num_scopes() == 0);
  }

  TEST_CASE("kernels of a measured context are counted by name, and of no other") {
    const Tensor x = Tensor::full({8, 8}, 0.5);
    KernelProfile profile;
    {
      const ProfileGuard guard(profile);
      ops::matmul(ops::gelu(x), x);
      ops::add(x, x);
    }
    ops::matmul(x, x);
    CHECK(profile.entries().at("matmul").scopes == 1);
    CHECK(profile.entries().at("elementwise").scopes == 2);
    CHECK(profile.entries().at("matmul").seconds > 0);
  }

  TEST_CASE("a guard gives back the profile before it, an error thrown or not") {
    KernelProfile outer;
    KernelProfile inner;
    {
      const ProfileGuard guard(outer);
      try {
        const ProfileGuard nested(inner);
        CHECK(current_context().profile == &inner);
        fail("planted");
      } catch (const Error&) {
        CHECK(current_context().profile == &outer);
      }
    }
    CHECK(current_context().profile == nullptr);
  }

  TEST_CASE("the products of the head belong to the head, in forward and in backward") {
    for (const ops::HeadForm form : {ops::HeadForm::Recompute, ops::HeadForm::GradientInForward}) {
      Tensor hidden = Tensor::full({8, 4}, 0.5);
      Tensor weight = Tensor::full({6, 4}, 0.5);
      hidden.set_requires_grad(true);
      weight.set_requires_grad(true);
      const Tensor targets = Tensor::zeros({8}, DType::Int64);
      KernelProfile profile;
      {
        const ProfileGuard guard(profile);
        autograd::backward(ops::linear_cross_entropy(hidden, weight, targets, {.form = form}));
      }
      CHECK(profile.entries().count("matmul") == 0);
      CHECK(profile.entries().count("cross_entropy") == 0);
      CHECK(profile.entries().at("linear_cross_entropy").scopes ==
            (form == ops::HeadForm::Recompute ? 2 : 1));
    }
  }
}
