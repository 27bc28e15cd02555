#include "runtime/autograd/gradient_slot.h"

#include <cmath>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/embedding.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "runtime/tensor/views.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"
#include "tests/support/owners.h"

namespace fsdptrain {
namespace {

using testing::RestlessOwner;
using testing::TestOwner;
using testing::TinyOwner;
using Values = std::vector<double>;

autograd::GradientSlot& slot_of(const Tensor& parameter) {
  return *parameter.autograd_meta()->slot->slots.front();
}

// x[2, 2] @ w[out, 2]^T, summed: dw = column sums of x in every row.
Tensor loss_of(const Tensor& weight) {
  const Tensor x = Tensor::of({1, 2, 10, 20}, weight.dtype()).alias({2, 2}, {2, 1}, 0);
  return ops::sum(ops::linear(x, weight));
}

// The same as a run of the owner's unit.
Tensor loss_of(TestOwner& owner, const Tensor& weight) {
  return owner.run([&] { return loss_of(weight); });
}

// An owner whose one slot has bytes when a write asks for them, and until the invocation ends.
class LazyOwner final : public autograd::ParameterOwner {
 public:
  LazyOwner() {
    w = Tensor::of({1, 2}, DType::Float64).alias({1, 2}, {2, 1}, 0);
    w.set_requires_grad(true);
    slot->buffer = Tensor::over(gradients, DType::Float64, {1, 2}, {2, 1}, 0);
    slot->owner = reference();
    w.autograd_meta()->owner = reference();
    w.autograd_meta()->slot = autograd::SlotView{slot->buffer, {slot}, true};
  }

  void unshard() override {}
  void reshard() override {}
  void prepare_gradients() override {
    ++num_prepared;
    gradients->restore(reinterpret_cast<std::byte*>(memory.data()));
  }
  void post_backward(std::uint64_t /*invocation*/) override {
    slot->written = false;
    gradients->release();
  }

  std::vector<double> memory{-1, -1};
  std::shared_ptr<Storage> gradients = Storage::placed(Device::cpu(), 2 * sizeof(double));
  std::shared_ptr<autograd::GradientSlot> slot = std::make_shared<autograd::GradientSlot>();
  Tensor w;
  int num_prepared = 0;
};

}  // namespace

TEST_SUITE("runtime/autograd/gradient_slot") {
  TEST_CASE("a slot without bytes asks its owner for them, once for all writes until it is done") {
    LazyOwner owner;
    for (int pass = 1; pass <= 2; ++pass) {
      owner.begin_invocation();
      const Tensor y = ops::add(loss_of(owner.w), loss_of(owner.w));
      owner.end_invocation();
      CHECK(owner.num_prepared == pass - 1);
      autograd::backward(y);
      CHECK(owner.num_prepared == pass);
      CHECK(owner.gradients->released());
      CHECK(owner.memory == Values{22, 44});
    }
  }

  TEST_CASE_TEMPLATE("the first write replaces what is in the slot, later ones add", Owner,
                     TinyOwner, RestlessOwner) {
    Owner owner(4);
    Tensor w = owner.add("w", {2, 2}, {1, 2, 3, 4});
    CHECK_FALSE(w.grad().defined());
    CHECK(autograd::backward(loss_of(owner, w)).slot_elements_added == 0);
    CHECK(w.grad().to_vector() == Values{11, 22, 11, 22});
    autograd::backward(loss_of(owner, w));
    CHECK(w.grad().to_vector() == Values{22, 44, 22, 44});
    w.zero_grad();
    CHECK_FALSE(w.grad().defined());
    autograd::backward(ops::add(loss_of(owner, w), loss_of(owner, w)));
    CHECK(w.grad().to_vector() == Values{22, 44, 22, 44});
  }

  TEST_CASE_TEMPLATE("an op that does not post leaves the add to the engine", Owner, TinyOwner,
                     RestlessOwner) {
    Owner owner(4);
    const Tensor w = owner.add("w", {4}, {1, 2, 3, 4});
    const Tensor y = owner.run([&] { return ops::sum(ops::add(ops::square(w), w)); });
    CHECK(autograd::backward(y).slot_elements_added == 8);
    CHECK(w.grad().to_vector() == Values{3, 5, 7, 9});
  }

  TEST_CASE_TEMPLATE("a narrow view fills the rest of its slot with zeros, then adds", Owner,
                     TinyOwner, RestlessOwner) {
    Owner owner(6);
    Tensor w = owner.add("w", {3, 2}, {1, 2, 3, 4, 5, 6});
    autograd::backward(loss_of(owner, ops::narrow(w, 0, 1, 1)));
    CHECK(w.grad().to_vector() == Values{0, 0, 11, 22, 0, 0});
    autograd::backward(loss_of(owner, ops::narrow(w, 0, 0, 2)));
    CHECK(w.grad().to_vector() == Values{11, 22, 22, 44, 0, 0});
    w.zero_grad();
    const Tensor column = ops::narrow(w, 1, 1, 1);
    autograd::backward(
        owner.run([&] { return ops::sum(ops::linear(Tensor::of({3}, DType::Float64), column)); }));
    CHECK(w.grad().to_vector() == Values{0, 3, 0, 3, 0, 3});
  }

  TEST_CASE_TEMPLATE("a transposed view writes its slot transposed, without an add of the engine",
                     Owner, TinyOwner, RestlessOwner) {
    Owner owner(6);
    const Tensor w = owner.add("w", {2, 3}, {1, 2, 3, 4, 5, 6});
    const auto stats = autograd::backward(loss_of(owner, ops::transpose(w, 0, 1)));
    CHECK(stats.slot_elements_added == 0);
    CHECK(w.grad().to_vector() == Values{11, 11, 11, 22, 22, 22});
    autograd::backward(loss_of(owner, ops::reshape(w, {3, 2})));
    CHECK(w.grad().to_vector() == Values{22, 33, 22, 44, 33, 44});
  }

  TEST_CASE_TEMPLATE("a view whose layout no product can write goes through a copy", Owner,
                     TinyOwner, RestlessOwner) {
    Owner owner(8);
    Tensor w = owner.add("w", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor every_second = ops::squeeze(ops::narrow(ops::reshape(w, {2, 2, 2}), 2, 1, 1), 2);
    CHECK(every_second.strides() == Strides{4, 2});
    for (const double times : {1, 2}) {
      autograd::backward(loss_of(owner, every_second));
      CHECK(w.grad().to_vector() ==
            Values{0, 11 * times, 0, 22 * times, 0, 11 * times, 0, 22 * times});
    }
  }

  TEST_CASE_TEMPLATE("stacked adjacent parameters share one product and keep their own gradients",
                     Owner, TinyOwner, RestlessOwner) {
    Owner owner(10);
    Tensor a = owner.add("a", {1, 2}, {1, 2});
    const Tensor b = owner.add("b", {3, 2}, {3, 4, 5, 6, 7, 8});
    const Tensor c = owner.add("c", {1, 2}, {9, 10});
    const Tensor stacked = ops::stack_adjacent(std::vector{a, b});
    CHECK(stacked.shape() == Shape{4, 2});
    CHECK(owner.read(stacked) == Values{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(stacked.storage() == a.storage());
    // `a` has a gradient already: the stacked write must add to it and overwrite b.
    autograd::backward(loss_of(owner, a));
    const auto stats = autograd::backward(loss_of(owner, stacked));
    CHECK(stats.slot_elements_added == 0);
    CHECK(a.grad().to_vector() == Values{22, 44});
    CHECK(b.grad().to_vector() == Values{11, 22, 11, 22, 11, 22});
    CHECK_FALSE(c.grad().defined());
    int hooks = 0;
    for (const Tensor& parameter : {a, b}) {
      parameter.autograd_meta()->post_accumulate_hooks.emplace_back([&] { ++hooks; });
    }
    a.zero_grad();
    autograd::backward(ops::add(loss_of(owner, ops::narrow(stacked, 0, 0, 2)), loss_of(owner, a)));
    CHECK(hooks == 2);
    CHECK(a.grad().to_vector() == Values{22, 44});
    CHECK(b.grad().to_vector() == Values{22, 44, 11, 22, 11, 22});
  }

  TEST_CASE_TEMPLATE("a stack of views of parameters gives each its gradient", Owner, TinyOwner,
                     RestlessOwner) {
    Owner owner(8);
    const Tensor a = owner.add("a", {2, 2}, {1, 2, 3, 4});
    const Tensor b = owner.add("b", {2, 2}, {5, 6, 7, 8});
    const Tensor stacked =
        ops::stack_adjacent(std::vector{ops::narrow(a, 0, 1, 1), ops::narrow(b, 0, 0, 1)});
    CHECK(owner.read(stacked) == Values{3, 4, 5, 6});
    autograd::backward(loss_of(owner, stacked));
    CHECK(a.grad().to_vector() == Values{0, 0, 11, 22});
    CHECK(b.grad().to_vector() == Values{11, 22, 0, 0});
  }

  TEST_CASE("adjacent tensors without slots stack too") {
    const Tensor flat = Tensor::of({1, 2, 3, 4, 5, 6}, DType::Float64);
    Tensor a = flat.alias({1, 2}, {2, 1}, 0);
    Tensor b = flat.alias({2, 2}, {2, 1}, 2);
    CHECK_FALSE(ops::stack_adjacent(std::vector{a, b}).requires_grad());
    b.set_requires_grad(true);
    autograd::backward(loss_of(ops::stack_adjacent(std::vector{a, b})));
    CHECK(b.grad().to_vector() == Values{11, 22, 11, 22});
  }

  TEST_CASE("tensors that are not adjacent do not stack") {
    const Tensor flat = Tensor::zeros({12});
    const auto at = [&](const Shape& shape, std::int64_t offset) {
      return flat.alias(shape, Strides::contiguous(shape), offset);
    };
    const auto stack = [](std::vector<Tensor> tensors) { ops::stack_adjacent(tensors); };
    CHECK_NOTHROW(stack({at({1, 2}, 0), at({0, 2}, 2), at({2, 2}, 2)}));
    CHECK_THROWS_WITH_AS(
        stack({at({1, 2}, 0), at({1, 2}, 3)}),
        doctest::Contains("stack_adjacent: a tensor of shape [1, 2] does not follow the one before "
                          "it in memory: register the parameters as adjacent"),
        AutogradError);
    CHECK_THROWS_AS(stack({at({1, 2}, 2), at({1, 2}, 0)}), AutogradError);
    CHECK_THROWS_AS(stack({at({1, 2}, 0), Tensor::zeros({1, 2})}), AutogradError);
    CHECK_THROWS_WITH_AS(stack({at({1, 2}, 0), at({1, 3}, 2)}),
                         doctest::Contains("shapes [1, 2] and [1, 3] differ behind the first"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(stack({views::transpose(at({2, 2}, 0), 0, 1), at({1, 2}, 4)}),
                         doctest::Contains("stack_adjacent: the first tensor, of shape [2, 2] and "
                                           "strides [1, 2], has gaps"),
                         AutogradError);
    const Tensor halves = Tensor::over(flat.storage(), DType::BFloat16, {1, 2}, {2, 1}, 2);
    CHECK_THROWS_WITH_AS(stack({at({1, 2}, 0), halves}),
                         doctest::Contains("stack_adjacent: dtypes float32 and bfloat16 differ"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(stack({}), doctest::Contains("needs at least one parameter"), ShapeError);
    CHECK_THROWS_AS(stack({at({}, 0)}), ShapeError);
  }

  TEST_CASE_TEMPLATE("the layers of a transformer leave the engine nothing to add", Owner,
                     TinyOwner, RestlessOwner) {
    Owner owner(64, DType::Float32, DType::Float32);
    Values rows_of_table(20, 0.5);
    rows_of_table[7] = -2;
    const Tensor table = owner.add("wte.weight", {5, 4}, rows_of_table);
    const Tensor scale = owner.add("ln.weight", {4}, {1, 2, 3, 4});
    const Tensor shift = owner.add("ln.bias", {4}, {1, 0, -1, 2});
    const Tensor weight = owner.add("fc.weight", {3, 4}, Values(12, 0.25));
    const Tensor bias = owner.add("fc.bias", {3}, {1, 2, 3});
    const std::vector<std::int64_t> rows{1, 3, 1};
    const Tensor indices = Tensor::from<std::int64_t>(rows, {3});
    const auto stats = autograd::backward(owner.run([&] {
      const Tensor x = ops::layer_norm(ops::embedding(table, indices), scale, shift, 1e-5);
      return ops::sum(ops::linear(x, weight, bias));
    }));
    CHECK(stats.slot_elements_added == 0);
    for (const Tensor& parameter : {table, scale, shift, weight, bias}) {
      CHECK(slot_of(parameter).written);
      for (const double value : parameter.grad().to_vector()) {
        CHECK(std::isfinite(value));
      }
    }
    CHECK(bias.grad().to_vector() == Values{3, 3, 3});
    CHECK(shift.grad().to_vector() == Values(4, 3 * 0.75));
  }

  TEST_CASE_TEMPLATE(
      "bfloat16 parameters gather their gradients in float32 without rounding between", Owner,
      TinyOwner, RestlessOwner) {
    Owner owner(12, DType::BFloat16, DType::Float32);
    const Tensor w = owner.add("w", {2, 2}, {1, 2, 3, 4});
    const Tensor bias = owner.add("bias", {2}, {1, 1});
    const Tensor x = Tensor::full({257, 2}, 1, DType::BFloat16);
    for (int i = 0; i < 2; ++i) {
      autograd::backward(owner.run([&] { return ops::linear(x, w, bias); }),
                         {.grad_output = Tensor::full({257, 2}, 1, DType::BFloat16)});
    }
    // 257 and 514 have no bfloat16.
    CHECK(w.grad().dtype() == DType::Float32);
    CHECK(w.grad().to_vector() == Values{514, 514, 514, 514});
    CHECK(bias.grad().to_vector() == Values{514, 514});
  }

  TEST_CASE_TEMPLATE("float32 parameters gather their gradients in float64", Owner, TinyOwner,
                     RestlessOwner) {
    Owner owner(6, DType::Float32, DType::Float64);
    const Tensor w = owner.add("w", {2, 2}, {1, 2, 3, 4});
    const Tensor bias = owner.add("bias", {2}, {1, 1});
    const Tensor x = Tensor::of({1, 2, 10, 20}).alias({2, 2}, {2, 1}, 0);
    for (const double times : {1, 2}) {
      autograd::backward(owner.run([&] { return ops::sum(ops::linear(x, w, bias)); }));
      CHECK(w.grad().to_vector() == Values{11 * times, 22 * times, 11 * times, 22 * times});
      CHECK(bias.grad().to_vector() == Values{2 * times, 2 * times});
    }
  }

  TEST_CASE_TEMPLATE("a writer that fails leaves its slot unwritten, and the next one replaces it",
                     Owner, TinyOwner, RestlessOwner) {
    Owner owner(2);
    const Tensor w = owner.add("w", {2}, {1, 2});
    const auto run = [&](int failing_write) {
      const Tensor y = autograd::record(
          "writer", w.detach(), {w},
          [failing_write](const Tensor& dy, autograd::GradientSink& sink) -> autograd::Gradients {
            for (int i = 0; i < 2; ++i) {
              sink.post(0, [&](const autograd::GradientTarget& target) {
                check(i != failing_write, "write {} failed", i);
                ops::sum_into(target, dy);
              });
            }
            return {Tensor()};
          });
      autograd::backward(y, {.grad_output = Tensor::of({3, 4}, DType::Float64)});
    };
    for (const int failing_write : {0, 1}) {
      CHECK_THROWS_WITH_AS(run(failing_write), doctest::Contains("backward of writer: write"),
                           Error);
      CHECK_FALSE(w.grad().defined());
    }
    run(2);
    CHECK(w.grad().to_vector() == Values{6, 8});
  }

  TEST_CASE("a slot without its bytes is not opened") {
    const auto storage = Storage::placed(Device::cpu(), 16);
    auto slot = std::make_shared<autograd::GradientSlot>();
    slot->buffer = Tensor::over(storage, DType::Float64, {2}, {1}, 0);
    const autograd::SlotView view{slot->buffer, {slot}, true};
    CHECK_THROWS_AS(view.open(), StorageError);
    CHECK_FALSE(slot->written);
  }

  TEST_CASE("two posts for one input without a slot add up") {
    Tensor x = Tensor::of({1, 2}, DType::Float64);
    x.set_requires_grad(true);
    const Tensor y = autograd::record(
        "twice", x.detach(), {x},
        [](const Tensor& dy, autograd::GradientSink& sink) -> autograd::Gradients {
          for (int i = 0; i < 2; ++i) {
            sink.post(0,
                      [&](const autograd::GradientTarget& target) { ops::sum_into(target, dy); });
          }
          return {Tensor()};
        });
    autograd::backward(y, {.grad_output = Tensor::of({3, 4}, DType::Float64)});
    CHECK(x.grad().to_vector() == Values{6, 8});
  }
}

}  // namespace fsdptrain
