#include "runtime/autograd/value_watch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/module.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/cast.h"
#include "runtime/ops/embedding.h"
#include "runtime/ops/linear_cross_entropy.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/grad_check.h"
#include "tests/support/slots.h"

namespace fsdptrain {
namespace {

using autograd::Direction;
using autograd::Gradients;
using autograd::GradientSink;
using autograd::ValueRole;
using autograd::WatchedValue;
using autograd::WatchGuard;
using Log = std::vector<std::string>;

std::string in_words(const WatchedValue& value) {
  static constexpr const char* kDirections[] = {"forward ", "replay ", "backward "};
  std::string text = kDirections[static_cast<int>(value.direction)];
  switch (value.role) {
    case ValueRole::Leaf:
      text += "in";
      break;
    case ValueRole::Output:
      text += "out";
      break;
    case ValueRole::OutputGradient:
      text += "dout";
      break;
    case ValueRole::InputGradient:
      text += "din";
      break;
    case ValueRole::LeafGradient:
      text += "dleaf";
      break;
  }
  text += value.input < 0 ? "" : std::to_string(value.input);
  text += value.op.empty() ? "" : " of " + std::string(value.op);
  text += value.module.empty() ? "" : " in " + std::string(value.module);
  text += value.parameter.empty() ? "" : " (" + std::string(value.parameter) + ")";
  return text + " " + std::to_string(static_cast<int>(value.values.item()));
}

// What a watch sees while body() runs.
template <class Body>
Log seen(const Body& body) {
  Log log;
  const WatchGuard guard([&](const WatchedValue& value) { log.push_back(in_words(value)); });
  body();
  return log;
}

Tensor leaf(std::initializer_list<double> values, const char* name = "") {
  Tensor x = Tensor::of(values, DType::Float64);
  x.set_requires_grad(true);
  x.autograd_meta()->name = name;
  return x;
}

// Squares its input, then scales it by 3 (an op by the name of affine).
class Inner final : public nn::Module {
  Tensor forward(const Tensor& x) override { return ops::scale(ops::square(x), 3); }
};

class Middle final : public nn::Module {
 public:
  Middle() { register_module("attn", inner); }
  Inner inner;

 private:
  Tensor forward(const Tensor& x) override { return ops::negate(inner(x)); }
};

class Outer final : public nn::Module {
 public:
  Outer() { register_module("h.0", middle); }
  Middle middle;

 private:
  Tensor forward(const Tensor& x) override { return ops::scale(middle(x), 2); }
};

}  // namespace

TEST_SUITE("runtime/autograd/value_watch") {
  TEST_CASE("a watch sees leaves, outputs and gradients in the order of execution") {
    const Tensor x = leaf({2}, "x");
    const Tensor constant = Tensor::of({5}, DType::Float64);
    const Log log = seen([&] { autograd::backward(ops::negate(ops::multiply(x, constant))); });
    CHECK(log == Log{"forward in0 of multiply (x) 2", "forward in1 of multiply 5",
                     "forward out of multiply 10", "forward out of negate -10",
                     "backward dout of negate 1", "backward din0 of negate -1",
                     "backward dout of multiply -1", "backward din0 of multiply (x) -5",
                     "backward dleaf (x) -5"});
  }

  TEST_CASE("ops that record nothing are seen too, unless gradients are off") {
    const Tensor x = Tensor::of({2}, DType::Float64);
    CHECK(seen([&] { ops::square(x); }) ==
          Log{"forward in0 of square 2", "forward out of square 4"});
    CHECK(seen([&] {
            const autograd::NoGradGuard no_grad;
            ops::square(x);
          }) == Log{});
  }

  TEST_CASE("a guard ends where it does, and the one around it sees again") {
    const Tensor x = Tensor::of({2}, DType::Float64);
    Log inner;
    const Log outer = seen([&] {
      inner = seen([&] { ops::square(x); });
      ops::scale(x, 4);
    });
    CHECK(inner.back() == "forward out of square 4");
    CHECK(outer == Log{"forward in0 of affine 2", "forward out of affine 8"});
    CHECK(current_context().autograd.watch == nullptr);
  }

  TEST_CASE("integers and missing inputs are not shown") {
    const Tensor weight = leaf({2, 3}, "w");
    const Tensor table = ops::reshape(weight, {2, 1});
    const std::vector<std::int64_t> indices = {1};
    const Log log = seen([&] { ops::embedding(table, Tensor::from<std::int64_t>(indices, {1})); });
    CHECK(log == Log{"forward out of embedding 3"});
  }

  TEST_CASE("the modules of an op are named in its forward, its replay and its backward") {
    for (const nn::Recompute policy : {nn::Recompute::None, nn::Recompute::Full}) {
      for (const bool of_inner : {false, true}) {
        CAPTURE(static_cast<int>(policy));
        CAPTURE(of_inner);
        Outer model;
        of_inner ? model.middle.inner.set_recompute(policy) : model.middle.set_recompute(policy);
        const Tensor x = leaf({2});
        Tensor y;
        const Log forward = seen([&] { y = model(ops::scale(x, 1)); });
        CHECK(forward == Log{"forward in0 of affine 2", "forward out of affine 2",
                             "forward out of square in h.0.attn 4",
                             "forward out of affine in h.0.attn 12",
                             "forward out of negate in h.0 -12", "forward out of affine -24"});
        Log backward = seen([&] { autograd::backward(y); });
        Log replay;
        for (const std::string& line : backward) {
          if (line.starts_with("replay")) {
            replay.push_back(line);
          }
        }
        std::erase_if(backward, [](const std::string& line) { return line.starts_with("replay"); });
        CHECK(backward ==
              Log{"backward dout of affine 1", "backward din0 of affine 2",
                  "backward dout of negate in h.0 2", "backward din0 of negate in h.0 -2",
                  "backward dout of affine in h.0.attn -2",
                  "backward din0 of affine in h.0.attn -6",
                  "backward dout of square in h.0.attn -6",
                  "backward din0 of square in h.0.attn -24", "backward dout of affine -24",
                  "backward din0 of affine -24", "backward dleaf -24"});
        Log expected;
        if (policy == nn::Recompute::Full) {
          expected = {"replay out of square in h.0.attn 4", "replay out of affine in h.0.attn 12"};
          if (!of_inner) {
            expected.emplace_back("replay out of negate in h.0 -12");
          }
        }
        CHECK(replay == expected);
      }
    }
  }

  TEST_CASE("a module that fails is not the one that the next op is in") {
    class Failing final : public nn::Module {
      Tensor forward(const Tensor&) override { fail("no luck"); }
    };
    Failing failing;
    CHECK_THROWS_AS(failing(Tensor::of({1})), Error);
    CHECK(current_context().autograd.module == nullptr);
  }

  TEST_CASE("a gradient in a slot is shown as the slot holds it, after earlier ones") {
    Tensor weight = leaf({1, 2}, "w");
    const Tensor gradients = Tensor::full({2}, std::nan(""), DType::Float64);
    testing::give_slot(weight, gradients);
    const auto pass = [&] {
      autograd::backward(
          ops::sum(autograd::record("posting", weight.detach(), {weight},
                                    [](const Tensor& dy, GradientSink& sink) -> Gradients {
                                      sink.post(0, [dy](const autograd::GradientTarget& target) {
                                        autograd::write_gradient(target, ops::scale(dy, 7));
                                      });
                                      return {Tensor()};
                                    })));
    };
    CHECK(seen(pass).back() == "backward dleaf (w) 7");
    const Log log = seen(pass);
    CHECK(std::ranges::count(log, "backward din0 of posting (w) 14") == 1);
    CHECK(log.back() == "backward dleaf (w) 14");
    // What a closure computes with is not shown.
    CHECK(std::ranges::none_of(
        log, [](const std::string& line) { return line.find("of affine") != std::string::npos; }));
  }

  TEST_CASE("a sum of finite gradients that overflows is shown") {
    const double largest = std::numeric_limits<double>::max();
    const Tensor x = leaf({1}, "x");
    const Tensor shared = ops::scale(x, 1);
    std::vector<std::string> places;
    const WatchGuard guard([&](const WatchedValue& value) {
      if (std::isinf(value.values.item())) {
        places.push_back(std::string(value.op) + std::to_string(static_cast<int>(value.role)));
      }
    });
    autograd::backward(ops::add(shared, shared),
                       {.grad_output = Tensor::full({1}, largest, DType::Float64)});
    CHECK(places.front() == "affine" + std::to_string(static_cast<int>(ValueRole::OutputGradient)));
  }

  TEST_CASE("the gradients that linear_cross_entropy computes in its forward are shown there") {
    const Tensor hidden = ops::scale(leaf({1, 2}), 1);
    Tensor weight = leaf({3, 4, 5, 6}, "head");
    const Tensor weight_VC = ops::reshape(weight, {2, 2});
    const Tensor gradients = Tensor::zeros({4}, DType::Float64);
    const std::vector<std::int64_t> targets = {1};
    for (const bool slotted : {false, true}) {
      if (slotted) {
        testing::give_slot(weight, gradients);
      }
      Log log;
      const WatchGuard guard([&](const WatchedValue& value) {
        if (value.op == "linear_cross_entropy" && value.direction == Direction::Backward) {
          log.push_back(std::to_string(value.input) + " " + std::string(value.parameter) + " " +
                        std::to_string(value.values.numel()));
        }
      });
      ops::linear_cross_entropy(
          ops::reshape(hidden, {1, 2}), slotted ? ops::reshape(weight, {2, 2}) : weight_VC,
          Tensor::from<std::int64_t>(targets, {1}), {.form = ops::HeadForm::GradientInForward});
      CHECK(log == Log{"0  2", slotted ? "1 head 4" : "1  4"});
    }
  }

  TEST_CASE("the residual sum of a norm is shown when it is filled") {
    const Tensor x = Tensor::of({1, 2}, DType::Float64);
    const Tensor weight = leaf({1, 1});
    const Log log = seen([&] { ops::add_layer_norm(x, ops::scale(x, 3), weight, Tensor(), 1e-5); });
    CHECK(std::ranges::count(log, "forward out of add_layer_norm 4") == 1);
  }

  TEST_CASE(
      "what a watch throws is an error of the op, and a slot it was to replace is unwritten") {
    Tensor weight = leaf({2}, "w");
    const auto slot = testing::give_slot(weight, Tensor::zeros({1}, DType::Float64));
    const Tensor y = autograd::record(
        "posting", weight.detach(), {weight},
        [](const Tensor& dy, GradientSink& sink) -> Gradients {
          sink.post(0, [dy](const auto& target) { autograd::write_gradient(target, dy); });
          return {Tensor()};
        });
    const WatchGuard guard([](const WatchedValue& value) {
      check(value.role != ValueRole::InputGradient, "enough seen");
    });
    CHECK_THROWS_WITH_AS(autograd::backward(y),
                         doctest::Contains("backward of posting: enough seen"), Error);
    CHECK_FALSE(slot->written);
  }
}

}  // namespace fsdptrain
