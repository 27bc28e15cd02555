#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/reduction.h"
#include "tests/support/owners.h"

// Forwards and backwards of one unit in every order, recomputed or not.
namespace fsdptrain {
namespace {

using testing::RestlessOwner;
using testing::TinyOwner;
using Ids = std::vector<std::uint64_t>;
using Tensors = std::vector<Tensor>;
using Values = std::vector<double>;

std::int64_t live_bytes() {
  return current_context().allocator(Device::cpu()).counters().live_total;
}

// y = ((x @ first^T) * second)^2: small whole numbers, so that no order of sums rounds.
template <class Owner>
struct Unit {
  explicit Unit(bool is_recomputed) : recompute(is_recomputed) {}

  bool recompute;
  Owner owner{6};
  Tensor first = owner.add("first", {2, 2}, {1, 2, 3, 4});
  Tensor second = owner.add("second", {2}, {2, -1});

  Tensor forward(const Tensor& x) {
    const auto body = [this](const Tensors& inputs) {
      return Tensors{owner.run(
          [&] { return ops::square(ops::multiply(ops::linear(inputs[0], first), second)); })};
    };
    return recompute ? autograd::recomputed({x}, body, {.name = "unit", .keep = {}}).front()
                     : body({x}).front();
  }

  Values gradients() const {
    Values values = first.grad().to_vector();
    const Values more = second.grad().to_vector();
    values.insert(values.end(), more.begin(), more.end());
    return values;
  }
};

Tensor input(int i) {
  return Tensor::of({1.0 + i, 2.0 - i}, DType::Float64);
}

// The gradients of the unit for the sum of its output at input(i).
Values gradients_at(int i) {
  Unit<TinyOwner> unit(false);
  autograd::backward(ops::sum(unit.forward(input(i))));
  return unit.gradients();
}

// Calls body(events) for every order of `count` forwards, taken in turn, and their backwards, each
// some time after its forward: i stands for forward i, -1 - i for its backward.
void for_each_order(int count, const std::function<void(const std::vector<int>&)>& body) {
  std::vector<int> events;
  std::vector<bool> done(static_cast<std::size_t>(count));
  const std::function<void(int)> extend = [&](int forwards) {
    if (static_cast<int>(events.size()) == 2 * count) {
      body(events);
      return;
    }
    if (forwards < count) {
      events.push_back(forwards);
      extend(forwards + 1);
      events.pop_back();
    }
    for (int i = 0; i < forwards; ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (!done[index]) {
        done[index] = true;
        events.push_back(-1 - i);
        extend(forwards);
        events.pop_back();
        done[index] = false;
      }
    }
  };
  extend(0);
}

template <class Owner>
void run_events(const std::vector<int>& events, bool recompute,
                const std::vector<Values>& gradients) {
  Unit<Owner> unit(recompute);
  Tensors losses(gradients.size());
  Values expected(6, 0.0);
  Ids finished;
  const std::int64_t before = live_bytes();
  for (const int event : events) {
    if (event >= 0) {
      losses[static_cast<std::size_t>(event)] = ops::sum(unit.forward(input(event)));
      continue;
    }
    const auto index = static_cast<std::size_t>(-1 - event);
    autograd::backward(losses[index]);
    losses[index] = Tensor();
    finished.push_back(index + 1);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += gradients[index][i];
    }
    CHECK(unit.gradients() == expected);
    CHECK(unit.owner.finished == finished);
  }
  CHECK(live_bytes() == before);
}

}  // namespace

TEST_SUITE("runtime/autograd/invocation") {
  TEST_CASE_TEMPLATE("four forwards and four backwards in each of their 105 orders", Owner,
                     TinyOwner, RestlessOwner) {
    std::vector<Values> gradients;
    for (int i = 0; i < 4; ++i) {
      gradients.push_back(gradients_at(i));
    }
    int orders = 0;
    for_each_order(4, [&](const std::vector<int>& events) {
      ++orders;
      CAPTURE(orders);
      for (const bool recompute : {false, true}) {
        CAPTURE(recompute);
        run_events<Owner>(events, recompute, gradients);
      }
    });
    CHECK(orders == 105);
  }

  TEST_CASE_TEMPLATE("a unit run twice in one forward, in a row and side by side", Owner, TinyOwner,
                     RestlessOwner) {
    const auto run = [](auto& unit) {
      Tensor x = input(1).set_requires_grad(true);
      const Tensor row = unit.forward(unit.forward(x));
      const Tensor side = ops::add(unit.forward(x), unit.forward(row));
      autograd::backward(ops::sum(side));
      Values values = unit.gradients();
      const Values more = x.grad().to_vector();
      values.insert(values.end(), more.begin(), more.end());
      return values;
    };
    Unit<TinyOwner> plain(false);
    const Values expected = run(plain);
    for (const bool recompute : {false, true}) {
      CAPTURE(recompute);
      Unit<Owner> unit(recompute);
      CHECK(run(unit) == expected);
      CHECK(unit.owner.finished == Ids{4, 3, 2, 1});
    }
  }

  TEST_CASE_TEMPLATE("unused outputs finish nothing, and their memory goes with them", Owner,
                     TinyOwner, RestlessOwner) {
    for (const bool recompute : {false, true}) {
      CAPTURE(recompute);
      Unit<Owner> unit(recompute);
      const std::int64_t before = live_bytes();
      {
        const Tensor used = unit.forward(input(0));
        const Tensor unused = unit.forward(input(1));
        const Tensor kept_for_later = unit.forward(unit.forward(input(2)));
        autograd::backward(ops::sum(used));
        CHECK(unit.owner.finished == Ids{1});
        autograd::backward(ops::sum(kept_for_later));
        CHECK(unit.owner.finished == Ids{1, 4, 3});
      }
      CHECK(live_bytes() == before);
    }
  }

  TEST_CASE_TEMPLATE("an output detached halfway cuts off the invocations below it", Owner,
                     TinyOwner, RestlessOwner) {
    for (const bool recompute : {false, true}) {
      CAPTURE(recompute);
      Unit<Owner> unit(recompute);
      Tensor x = input(0).set_requires_grad(true);
      const Tensor below = unit.forward(x);
      const Tensor above = unit.forward(below.detach());
      autograd::backward(ops::sum(above));
      CHECK(unit.owner.finished == Ids{2});
      CHECK_FALSE(x.grad().defined());
      const Values of_above = unit.gradients();
      // The rest is still there to be run.
      autograd::backward(ops::sum(below));
      CHECK(unit.owner.finished == Ids{2, 1});
      CHECK(x.grad().defined());
      CHECK(unit.gradients() != of_above);
    }
  }

  TEST_CASE_TEMPLATE("after a backward that failed halfway the next step equals a clean one", Owner,
                     TinyOwner, RestlessOwner) {
    const auto step = [](auto& unit, int failing_probe) {
      unit.owner.zero_grad();
      Tensor x = input(1).set_requires_grad(true);
      const auto probe = [&](int number, const Tensor& y) {
        return autograd::record("probe", y.detach(), {y},
                                [=](const Tensor& dy, autograd::GradientSink&) {
                                  check(number != failing_probe, "probe {} fails", number);
                                  return autograd::Gradients{dy};
                                });
      };
      const Tensor middle = probe(1, unit.forward(probe(0, ops::scale(x, 2))));
      autograd::backward(ops::sum(probe(2, unit.forward(middle))));
      Values values = unit.gradients();
      const Values more = x.grad().to_vector();
      values.insert(values.end(), more.begin(), more.end());
      return values;
    };
    Unit<TinyOwner> plain(false);
    const Values clean = step(plain, -1);
    for (const bool recompute : {false, true}) {
      for (const int failing_probe : {0, 1, 2}) {
        CAPTURE(recompute);
        CAPTURE(failing_probe);
        Unit<Owner> unit(recompute);
        const std::int64_t before = live_bytes();
        CHECK_THROWS_WITH_AS(step(unit, failing_probe), doctest::Contains("backward of probe"),
                             Error);
        CHECK(live_bytes() == before);
        CHECK(unit.owner.current_invocation().id == 0);
        CHECK(step(unit, -1) == clean);
        CHECK(live_bytes() == before);
      }
    }
  }
}

}  // namespace fsdptrain
