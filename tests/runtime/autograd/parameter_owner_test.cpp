#include "runtime/autograd/parameter_owner.h"

#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/inplace.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/owners.h"

namespace fsdptrain {
namespace {

using testing::RestlessOwner;
using testing::TinyOwner;
using Ids = std::vector<std::uint64_t>;
using Values = std::vector<double>;

// A unit of two weights: y = (x @ first^T) * second.
template <class Owner>
struct Unit {
  Owner owner{6};
  Tensor first = owner.add("first", {2, 2}, {1, 0, 0, 1});
  Tensor second = owner.add("second", {2}, {1, 1});

  Tensor forward(const Tensor& x) {
    return owner.run([&] { return ops::multiply(ops::linear(x, first), second); });
  }
};

Tensor input() {
  return Tensor::of({1, 2}, DType::Float64);
}

}  // namespace

TEST_SUITE("runtime/autograd/parameter_owner") {
  TEST_CASE_TEMPLATE("invocations are numbered and nest", Owner, TinyOwner, RestlessOwner) {
    Owner owner(1);
    CHECK(owner.current_invocation() == autograd::Invocation{owner.reference(), 0});
    owner.begin_invocation();
    CHECK(owner.current_invocation().id == 1);
    owner.begin_invocation();
    CHECK(owner.current_invocation().id == 2);
    owner.end_invocation();
    CHECK(owner.current_invocation().id == 1);
    owner.end_invocation();
    owner.begin_invocation();
    CHECK(owner.current_invocation().id == 3);
    owner.end_invocation();
    CHECK(owner.current_invocation().id == 0);
  }

  TEST_CASE_TEMPLATE("post_backward runs once, when the last gradient of the invocation is there",
                     Owner, TinyOwner, RestlessOwner) {
    Unit<Owner> unit;
    const Tensor y = unit.forward(input());
    unit.first.autograd_meta()->post_accumulate_hooks.emplace_back(
        [&] { CHECK(unit.owner.finished.empty()); });
    autograd::backward(ops::sum(y));
    CHECK(unit.owner.finished == Ids{1});
    CHECK(unit.first.grad().to_vector() == Values{1, 2, 1, 2});
    CHECK(unit.second.grad().to_vector() == Values{1, 2});
  }

  TEST_CASE_TEMPLATE("two forwards and one backward finish two invocations", Owner, TinyOwner,
                     RestlessOwner) {
    Unit<Owner> unit;
    const Tensor a = unit.forward(input());
    const Tensor b = unit.forward(input());
    autograd::backward(ops::sum(ops::add(a, b)));
    CHECK(unit.owner.finished == Ids{2, 1});
    CHECK(unit.second.grad().to_vector() == Values{2, 4});
  }

  TEST_CASE_TEMPLATE("a unit applied to its own output finishes two invocations, last first", Owner,
                     TinyOwner, RestlessOwner) {
    Unit<Owner> unit;
    autograd::backward(ops::sum(unit.forward(unit.forward(input()))));
    CHECK(unit.owner.finished == Ids{2, 1});
  }

  TEST_CASE_TEMPLATE("an invocation whose output is unused is not finished", Owner, TinyOwner,
                     RestlessOwner) {
    Unit<Owner> unit;
    const Tensor a = unit.forward(input());
    const Tensor unused = unit.forward(input());
    autograd::backward(ops::sum(a));
    CHECK(unit.owner.finished == Ids{1});
    autograd::backward(ops::sum(unused));
    CHECK(unit.owner.finished == Ids{1, 2});
  }

  TEST_CASE_TEMPLATE("each backward of a retained graph finishes the invocation once", Owner,
                     TinyOwner, RestlessOwner) {
    Unit<Owner> unit;
    const Tensor y = ops::sum(unit.forward(input()));
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    autograd::backward(y);
    CHECK(unit.owner.finished == Ids{1, 1});
    CHECK(unit.second.grad().to_vector() == Values{2, 4});
  }

  TEST_CASE_TEMPLATE("an edge to one weight alone is enough to finish an invocation", Owner,
                     TinyOwner, RestlessOwner) {
    Unit<Owner> unit;
    const Tensor used = unit.owner.run([&] { return ops::sum(ops::square(unit.second)); });
    autograd::backward(used);
    CHECK(unit.owner.finished == Ids{1});
    CHECK_FALSE(unit.first.grad().defined());
  }

  TEST_CASE_TEMPLATE("views and stacks of parameters carry the invocation of their use", Owner,
                     TinyOwner, RestlessOwner) {
    Owner owner(4);
    const Tensor a = owner.add("a", {1, 2}, {1, 2});
    const Tensor b = owner.add("b", {1, 2}, {3, 4});
    const Tensor early = ops::transpose(a, 0, 1);
    const Tensor y = owner.run([&] {
      return ops::add(ops::sum(ops::linear(input(), ops::stack_adjacent(std::vector{a, b}))),
                      ops::sum(ops::square(early)));
    });
    autograd::backward(y);
    CHECK(owner.finished == Ids{1});
    CHECK(a.grad().to_vector() == Values{1 + 2 * 1, 2 + 2 * 2});
    CHECK(b.grad().to_vector() == Values{1, 2});
  }

  TEST_CASE_TEMPLATE("undefined gradients count as delivered", Owner, TinyOwner, RestlessOwner) {
    Unit<Owner> unit;
    const Tensor y = unit.forward(input());
    const Tensor cut = autograd::record(
        "cut", Tensor::of({1}, DType::Float64), {y},
        [](const Tensor&, autograd::GradientSink&) -> autograd::Gradients { return {Tensor()}; });
    autograd::backward(cut);
    CHECK(unit.owner.finished == Ids{1});
    CHECK_FALSE(unit.first.grad().defined());
  }

  TEST_CASE_TEMPLATE("an optimizer step between forward and backward is a named error", Owner,
                     TinyOwner, RestlessOwner) {
    Unit<Owner> unit;
    Tensor x = input();
    x.set_requires_grad(true);
    const Tensor y = ops::sum(unit.forward(x));
    unit.owner.bump_epoch();
    CHECK_THROWS_WITH_AS(autograd::backward(y),
                         doctest::Contains("backward of multiply: parameter second was changed "
                                           "between forward and backward (parameter epoch 0 then, "
                                           "1 now)"),
                         AutogradError);
    CHECK(unit.owner.finished.empty());
    autograd::backward(ops::sum(unit.forward(x)));
    CHECK(unit.owner.finished == Ids{2});
  }

  TEST_CASE_TEMPLATE(
      "an in-place write to a parameter between forward and backward is a named error", Owner,
      TinyOwner, RestlessOwner) {
    Unit<Owner> unit;
    Tensor x = input();
    x.set_requires_grad(true);
    const Tensor y = unit.owner.run([&] {
      return ops::sum(ops::multiply(x, ops::reshape(unit.second, {2, 1})));
    });
    {
      const autograd::NoGradGuard no_grad;
      unit.owner.unshard();
      ops::fill_(unit.second, 3);
      unit.owner.reshard();
    }
    CHECK_THROWS_WITH_AS(
        autograd::backward(y),
        doctest::Contains("second of shape [2, 1] saved for backward was changed in place"),
        AutogradError);
  }

  TEST_CASE_TEMPLATE("a graph that outlives the owner of its parameters is a named error", Owner,
                     TinyOwner, RestlessOwner) {
    auto unit = std::make_unique<Unit<Owner>>();
    Tensor x = input();
    x.set_requires_grad(true);
    const Tensor y = ops::sum(unit->forward(x));
    const Tensor copy = unit->second;
    unit.reset();
    CHECK_THROWS_WITH_AS(autograd::backward(y),
                         doctest::Contains("the owner of parameter second is gone: it must live "
                                           "until the last backward"),
                         AutogradError);
    CHECK_FALSE(x.grad().defined());
    const auto identity = [](const Tensor& dy, autograd::GradientSink&) {
      return autograd::Gradients{dy};
    };
    CHECK_THROWS_WITH_AS(autograd::record("late", copy.detach(), {copy}, identity),
                         doctest::Contains("the owner of parameter second is gone"), AutogradError);
  }

  TEST_CASE_TEMPLATE("a weight that only its gradient needs may change", Owner, TinyOwner,
                     RestlessOwner) {
    Unit<Owner> unit;
    const Tensor y = unit.owner.run([&] { return ops::sum(ops::linear(input(), unit.first)); });
    unit.owner.bump_epoch();
    CHECK_NOTHROW(autograd::backward(y));
    CHECK(unit.first.grad().to_vector() == Values{1, 2, 1, 2});
  }
}

}  // namespace fsdptrain
