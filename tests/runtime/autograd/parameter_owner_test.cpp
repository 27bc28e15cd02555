#include "runtime/autograd/parameter_owner.h"

#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/inplace.h"
#include "runtime/ops/matmul.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/tiny_owner.h"

namespace fsdptrain {
namespace {

using testing::TinyOwner;
using Ids = std::vector<std::uint64_t>;
using Values = std::vector<double>;

// A unit of two weights: y = (x @ first^T) * second.
struct Unit {
  TinyOwner owner{6};
  Tensor first = owner.add("first", {2, 2}, {1, 0, 0, 1});
  Tensor second = owner.add("second", {2}, {1, 1});

  Tensor forward(const Tensor& x) {
    owner.begin_invocation();
    const Tensor y = ops::multiply(ops::linear(x, first), second);
    owner.end_invocation();
    return y;
  }
};

Tensor input() {
  return Tensor::of({1, 2}, DType::Float64);
}

}  // namespace

TEST_SUITE("runtime/autograd/parameter_owner") {
  TEST_CASE("invocations are numbered and nest") {
    TinyOwner owner(1);
    CHECK(owner.current_invocation() == autograd::Invocation{&owner, 0});
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

  TEST_CASE("post_backward runs once, when the last gradient of the invocation is there") {
    Unit unit;
    const Tensor y = unit.forward(input());
    unit.first.autograd_meta()->post_accumulate_hooks.emplace_back(
        [&] { CHECK(unit.owner.finished.empty()); });
    autograd::backward(ops::sum(y));
    CHECK(unit.owner.finished == Ids{1});
    CHECK(unit.first.grad().to_vector() == Values{1, 2, 1, 2});
    CHECK(unit.second.grad().to_vector() == Values{1, 2});
  }

  TEST_CASE("two forwards and one backward finish two invocations") {
    Unit unit;
    const Tensor a = unit.forward(input());
    const Tensor b = unit.forward(input());
    autograd::backward(ops::sum(ops::add(a, b)));
    CHECK(unit.owner.finished == Ids{2, 1});
    CHECK(unit.second.grad().to_vector() == Values{2, 4});
  }

  TEST_CASE("a unit applied to its own output finishes two invocations, last first") {
    Unit unit;
    autograd::backward(ops::sum(unit.forward(unit.forward(input()))));
    CHECK(unit.owner.finished == Ids{2, 1});
  }

  TEST_CASE("an invocation whose output is unused is not finished") {
    Unit unit;
    const Tensor a = unit.forward(input());
    const Tensor unused = unit.forward(input());
    autograd::backward(ops::sum(a));
    CHECK(unit.owner.finished == Ids{1});
    autograd::backward(ops::sum(unused));
    CHECK(unit.owner.finished == Ids{1, 2});
  }

  TEST_CASE("each backward of a retained graph finishes the invocation once") {
    Unit unit;
    const Tensor y = ops::sum(unit.forward(input()));
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    autograd::backward(y);
    CHECK(unit.owner.finished == Ids{1, 1});
    CHECK(unit.second.grad().to_vector() == Values{2, 4});
  }

  TEST_CASE("an edge to one weight alone is enough to finish an invocation") {
    Unit unit;
    unit.owner.begin_invocation();
    const Tensor used = ops::sum(ops::square(unit.second));
    unit.owner.end_invocation();
    autograd::backward(used);
    CHECK(unit.owner.finished == Ids{1});
    CHECK_FALSE(unit.first.grad().defined());
  }

  TEST_CASE("views and stacks of parameters carry the invocation of their use") {
    TinyOwner owner(4);
    const Tensor a = owner.add("a", {1, 2}, {1, 2});
    const Tensor b = owner.add("b", {1, 2}, {3, 4});
    const Tensor early = ops::transpose(a, 0, 1);
    owner.begin_invocation();
    const Tensor y =
        ops::add(ops::sum(ops::linear(input(), ops::stack_adjacent(std::vector{a, b}))),
                 ops::sum(ops::square(early)));
    owner.end_invocation();
    autograd::backward(y);
    CHECK(owner.finished == Ids{1});
    CHECK(a.grad().to_vector() == Values{1 + 2 * 1, 2 + 2 * 2});
    CHECK(b.grad().to_vector() == Values{1, 2});
  }

  TEST_CASE("undefined gradients count as delivered") {
    Unit unit;
    const Tensor y = unit.forward(input());
    const Tensor cut = autograd::record(
        "cut", Tensor::of({1}, DType::Float64), {y},
        [](const Tensor&, autograd::GradientSink&) -> autograd::Gradients { return {Tensor()}; });
    autograd::backward(cut);
    CHECK(unit.owner.finished == Ids{1});
    CHECK_FALSE(unit.first.grad().defined());
  }

  TEST_CASE("an optimizer step between forward and backward is a named error") {
    Unit unit;
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

  TEST_CASE("an in-place write to a parameter between forward and backward is a named error") {
    Unit unit;
    Tensor x = input();
    x.set_requires_grad(true);
    const Tensor y = ops::sum(ops::multiply(x, ops::reshape(unit.second, {2, 1})));
    {
      const autograd::NoGradGuard no_grad;
      ops::fill_(unit.second, 3);
    }
    CHECK_THROWS_WITH_AS(
        autograd::backward(y),
        doctest::Contains("second of shape [2, 1] saved for backward was changed in place"),
        AutogradError);
  }

  TEST_CASE("a weight that only its gradient needs may change") {
    Unit unit;
    const Tensor y = ops::sum(ops::linear(input(), unit.first));
    unit.owner.bump_epoch();
    CHECK_NOTHROW(autograd::backward(y));
    CHECK(unit.first.grad().to_vector() == Values{1, 2, 1, 2});
  }
}

}  // namespace fsdptrain
