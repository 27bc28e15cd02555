#include "runtime/autograd/recompute.h"

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/cast.h"
#include "runtime/ops/inplace.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/linear_cross_entropy.h"
#include "runtime/ops/reduction.h"
#include "tests/support/block.h"
#include "tests/support/grad_check.h"
#include "tests/support/owners.h"

namespace fsdptrain {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using testing::Block;
using testing::random_tensor;
using testing::random_values;
using testing::RestlessOwner;
using testing::TinyOwner;
using Tensors = std::vector<Tensor>;
using Keep = std::vector<std::string_view>;
using Values = std::vector<double>;

// Whether and how a test's body is recomputed.
struct Mode {
  bool region = true;
  Keep keep = {};
};
const Mode kModes[] = {{.region = false},
                       {},
                       {.keep = {"linear"}},
                       {.keep = {"attention"}},
                       {.keep = {"attention", "linear"}}};

Tensor recomputed(const Tensor& x, const std::function<Tensor(const Tensor&)>& body,
                  const Mode& mode = {}) {
  if (!mode.region) {
    return body(x);
  }
  return autograd::recomputed({x},
                              [body](const Tensors& inputs) { return Tensors{body(inputs[0])}; },
                              {.name = "part", .keep = mode.keep})
      .front();
}

Tensor leaf(const Shape& shape, std::uint64_t seed) {
  return random_tensor(shape, seed).set_requires_grad(true);
}

Tensor leaf(std::initializer_list<double> values) {
  return Tensor::of(values, DType::Float64).set_requires_grad(true);
}

std::int64_t live_bytes() {
  return current_context().allocator(Device::cpu()).counters().live_total;
}

// The identity, recorded; its backward runs `backward` first.
Tensor with_backward(const Tensor& x, const std::function<void()>& backward) {
  return autograd::record("probe", x.detach(), {x},
                          [backward](const Tensor& dy, GradientSink&) -> Gradients {
                            backward();
                            return {dy};
                          });
}

// A body whose second run is another one.
std::function<Tensor(const Tensor&)> changing(std::function<Tensor(const Tensor&)> first,
                                              std::function<Tensor(const Tensor&)> second) {
  return [=, runs = std::make_shared<int>(0)](const Tensor& x) {
    return (*runs)++ == 0 ? first(x) : second(x);
  };
}

void check_replay_fails(const std::function<Tensor(const Tensor&)>& first,
                        const std::function<Tensor(const Tensor&)>& second, const char* text) {
  const Tensor x = leaf({2, 3}, 1);
  const std::int64_t before = live_bytes();
  {
    // An input that is a leaf would be held by the closures themselves.
    const Tensor y = ops::sum(recomputed(ops::scale(x, 1), changing(first, second)));
    const std::int64_t recorded = live_bytes();
    CHECK_THROWS_WITH_AS(autograd::backward(y), doctest::Contains(text), AutogradError);
    CHECK(live_bytes() <= recorded);
    CHECK(autograd::in_region() == false);
    CHECK(autograd::grad_enabled());
  }
  CHECK_FALSE(x.grad().defined());
  CHECK(live_bytes() == before);
}

}  // namespace

TEST_SUITE("runtime/autograd/recompute") {
  TEST_CASE_TEMPLATE("a region gives the bits of a plain graph and replays once", Owner, TinyOwner,
                     RestlessOwner) {
    Values expected;
    for (const Mode& mode : kModes) {
      CAPTURE(mode.keep.size());
      Block<Owner> block;
      const Tensor x = leaf({2, 3, 4}, 9);
      const Tensor y = recomputed(x, block.body(), mode);
      // Neither the keys nor the gradient mode of the moment matter to a replay.
      RandomKeys& random = current_context().random;
      const RandomKeys keys = random;
      random = {.seed = 99, .step = 98, .first_sample = 97};
      const auto stats = autograd::backward(y, {.grad_output = random_tensor(y.shape(), 10)});
      CHECK(random.step == 98);
      random = keys;
      CHECK(stats.replays == (mode.region ? 1 : 0));
      CHECK(stats.slot_elements_added == 0);
      CHECK(block.owner.finished == std::vector<std::uint64_t>{1});
      Values all = y.to_vector();
      const Values gradients = block.gradients(x);
      all.insert(all.end(), gradients.begin(), gradients.end());
      if (expected.empty()) {
        expected = all;
      }
      CHECK(all == expected);
    }
  }

  TEST_CASE("a region keeps its inputs and nothing else, and the backward frees them") {
    const auto body = [](const Tensor& x) {
      return ops::sum(ops::exp(ops::square(ops::tanh(ops::square(x)))));
    };
    const std::int64_t before = live_bytes();
    const auto held_by = [&](const Mode& mode) {
      const Tensor x = ops::scale(leaf({8, 8}, 1), 1);
      const std::int64_t with_input = live_bytes();
      Tensor y = recomputed(x, body, mode);
      const std::int64_t held = live_bytes() - with_input;
      autograd::backward(y);
      // The input, the result and the gradient of the leaf.
      CHECK(live_bytes() == before + 512 + 64 + 512);
      y = Tensor();
      return held;
    };
    // The result alone; or what exp and tanh gave beside it.
    CHECK(held_by({}) == 64);
    CHECK(held_by({.region = false}) == 64 + 2 * 512);
    CHECK(live_bytes() == before);
  }

  TEST_CASE("what a replay brought back goes with the closures that read it") {
    const Tensor x = leaf({8, 8}, 1);
    std::vector<std::int64_t> live;
    const auto probed = [&](const Tensor& y) {
      return with_backward(y, [&] { live.push_back(live_bytes()); });
    };
    const std::int64_t before = live_bytes();
    const Tensor y = ops::sum(recomputed(x, [&](const Tensor& input) {
      return ops::square(probed(ops::square(probed(ops::square(input)))));
    }));
    autograd::backward(y);
    // The result, its gradient, the gradient at the probe and the inputs of the squares below it.
    REQUIRE(live.size() == 2);
    CHECK(live[0] == before + 128 + 512 + 512);
    CHECK(live[1] == before + 128 + 512);
  }

  TEST_CASE("a replay that saves something else is a named error and leaves nothing behind") {
    const auto square = [](const Tensor& x) { return ops::square(x); };
    check_replay_fails(
        [=](const Tensor& x) { return square(square(x)); }, square,
        "backward of square: recompute of part: the forward saved 2 tensors and the replay 1: "
        "saved tensor 1, of square, is missing");
    check_replay_fails(
        square, [=](const Tensor& x) { return square(square(x)); },
        "recompute of part: the forward saved 1 tensors, but the replay one more, of shape [2, 3] "
        "and float64");
    check_replay_fails(
        [=](const Tensor& x) { return square(square(x)); },
        [=](const Tensor& x) {
          const int last[] = {1};
          return square(ops::sum(square(x), last));
        },
        "saved tensor 1, of square, had shape [2, 3] and float64 in the forward, but has [2] and "
        "float64 in the replay");
    check_replay_fails(
        [=](const Tensor& x) { return square(square(x)); },
        [=](const Tensor& x) { return square(ops::cast(square(x), DType::Float32)); },
        "saved tensor 1, of square, had shape [2, 3] and float64 in the forward, but has [2, 3] "
        "and float32 in the replay");
    check_replay_fails([=](const Tensor& x) { return ops::exp(square(x)); },
                       [=](const Tensor& x) { return ops::tanh(square(x)); },
                       "saved tensor 1 was of exp in the forward, but is of tanh in the replay");
  }

  TEST_CASE("a replay that throws leaves nothing allocated and can be run again") {
    const Tensor x = leaf({2, 3}, 1);
    auto fault = std::make_shared<int>(0);
    const auto body = [fault](const Tensor& input) {
      const Tensor middle = ops::square(ops::exp(input));
      if (*fault == 1) {
        fail<ShapeError>("no luck");
      }
      if (*fault == 2) {
        throw std::runtime_error("not ours");
      }
      return ops::tanh(middle);
    };
    const Tensor y = ops::sum(recomputed(x, body));
    const std::int64_t recorded = live_bytes();
    *fault = 1;
    CHECK_THROWS_WITH_AS(autograd::backward(y, {.grad_output = {}, .retain_graph = true}),
                         doctest::Contains("backward of tanh: recompute of part: no luck"),
                         ShapeError);
    CHECK(live_bytes() == recorded);
    *fault = 2;
    CHECK_THROWS_WITH_AS(autograd::backward(y, {.grad_output = {}, .retain_graph = true}),
                         "not ours", std::runtime_error);
    CHECK(live_bytes() == recorded);
    CHECK_FALSE(autograd::in_region());
    CHECK(autograd::grad_enabled());
    *fault = 0;
    autograd::backward(y);
    const Tensor again = leaf({2, 3}, 1);
    autograd::backward(ops::sum(body(again)));
    CHECK(x.grad().to_vector() == again.grad().to_vector());
  }

  TEST_CASE("an error behind a replay empties what it brought back") {
    const Tensor x = leaf({8, 8}, 1);
    const auto failing = std::make_shared<bool>(true);
    const Tensor y = ops::sum(recomputed(x, [failing](const Tensor& input) {
      return ops::exp(with_backward(ops::exp(input), [failing] { check(!*failing, "no luck"); }));
    }));
    const std::int64_t recorded = live_bytes();
    CHECK_THROWS_WITH_AS(autograd::backward(y, {.grad_output = {}, .retain_graph = true}),
                         doctest::Contains("backward of probe: no luck"), Error);
    CHECK(live_bytes() == recorded);
    *failing = false;
    CHECK(autograd::backward(y).replays == 1);
  }

  TEST_CASE("a retained graph replays once in each pass and holds nothing between") {
    const Tensor x = leaf({8, 8}, 1);
    const Tensor y =
        ops::sum(recomputed(x, [](const Tensor& input) { return ops::exp(ops::exp(input)); }));
    const std::int64_t recorded = live_bytes();
    for (int pass = 1; pass <= 2; ++pass) {
      CHECK(autograd::backward(y, {.grad_output = {}, .retain_graph = true}).replays == 1);
      // The gradient of x.
      CHECK(live_bytes() == recorded + 512);
    }
    CHECK(autograd::backward(y).replays == 1);
    const Tensor once = leaf({8, 8}, 1);
    autograd::backward(ops::sum(ops::exp(ops::exp(once))));
    CHECK(x.grad().to_vector() == ops::scale(once.grad(), 3).to_vector());
  }

  TEST_CASE_TEMPLATE("two forwards and their backwards, in either order", Owner, TinyOwner,
                     RestlessOwner) {
    for (const bool last_first : {true, false}) {
      std::vector<Values> results;
      for (const Mode& mode : {Mode{.region = false}, Mode{}, Mode{.keep = {"attention"}}}) {
        Block<Owner> block;
        const Tensor x = leaf({2, 3, 4}, 9);
        Tensors losses;
        for (int i = 0; i < 2; ++i) {
          losses.push_back(ops::sum(ops::square(recomputed(x, block.body(), mode))));
        }
        for (const int i : {0, 1}) {
          autograd::backward(losses[static_cast<std::size_t>(last_first ? 1 - i : i)]);
        }
        results.push_back(block.gradients(x));
      }
      CHECK(results[1] == results[0]);
      CHECK(results[2] == results[0]);
    }
  }

  TEST_CASE_TEMPLATE("a module that a region runs twice", Owner, TinyOwner, RestlessOwner) {
    std::vector<Values> results;
    for (const Mode& mode : kModes) {
      Block<Owner> block;
      const Tensor x = leaf({2, 3, 4}, 9);
      const auto twice = [&](const Tensor& input) { return block.forward(block.forward(input)); };
      autograd::backward(ops::sum(ops::square(recomputed(x, twice, mode))));
      CHECK(block.owner.finished == std::vector<std::uint64_t>{2, 1});
      results.push_back(block.gradients(x));
      CHECK(results.back() == results.front());
    }
  }

  TEST_CASE_TEMPLATE("a weight used in two regions and outside has one gradient", Owner, TinyOwner,
                     RestlessOwner) {
    std::vector<Values> results;
    for (const Mode& mode : kModes) {
      Block<Owner> block;
      const Tensor x = leaf({2, 3, 4}, 9);
      std::vector<std::string> log;
      block.up.autograd_meta()->post_accumulate_hooks.emplace_back([&] { log.emplace_back("up"); });
      x.autograd_meta()->post_accumulate_hooks.emplace_back([&] { log.emplace_back("x"); });
      Tensor y = recomputed(x, block.body(), mode);
      y.autograd_meta()->pre_backward_hooks.emplace_back(
          [&] { autograd::queue_callback([&] { log.emplace_back("end"); }); });
      y = recomputed(block.forward(y), block.body(), mode);
      autograd::backward(ops::sum(ops::square(y)));
      CHECK(log == std::vector<std::string>{"up", "x", "end"});
      CHECK(block.owner.finished == std::vector<std::uint64_t>{3, 2, 1});
      results.push_back(block.gradients(x));
      CHECK(results.back() == results.front());
    }
  }

  TEST_CASE_TEMPLATE("regions nest, and a region in a region holds nothing either", Owner,
                     TinyOwner, RestlessOwner) {
    std::vector<Values> results;
    std::vector<std::int64_t> held;
    const auto run = [&](const Mode& outer, const Mode& inner, std::int64_t replays) {
      Block<Owner> block;
      const Tensor x = leaf({2, 3, 4}, 9);
      const std::int64_t before = live_bytes();
      const Tensor y = recomputed(
          x,
          [&](const Tensor& input) {
            const Tensor first = recomputed(input, block.body(), inner);
            const Tensor second = recomputed(ops::tanh(first), block.body(), inner);
            return ops::square(second);
          },
          outer);
      held.push_back(live_bytes() - before);
      const auto stats = autograd::backward(ops::sum(y));
      CHECK(stats.replays == replays);
      results.push_back(block.gradients(x));
      CHECK(results.back() == results.front());
    };
    const Mode plain{.region = false};
    run(plain, plain, 0);
    run({}, plain, 1);
    run({}, {}, 3);
    // The result.
    CHECK(held[1] == 192);
    CHECK(held[2] == 192);
    // What the inner ones keep is left out by the outer one.
    run({}, {.keep = {"attention", "linear"}}, 3);
    CHECK(held[3] == 192);
    run({.keep = {"linear"}}, {.keep = {"attention"}}, 3);
    run(plain, {.keep = {"attention"}}, 2);
    CHECK(held[5] > 192);
    CHECK(held[5] < held[0]);
  }

  TEST_CASE("kept outputs are not computed again, and serve every pass of a retained graph") {
    int runs = 0;
    const auto costly = [&runs](const Tensor& x) {
      const Tensor y = autograd::keep_or_run("costly", [&] {
                         ++runs;
                         return Tensors{ops::scale(x.detach(), 3)};
                       }).front();
      return autograd::record("costly", y, {x}, [](const Tensor& dy, GradientSink&) -> Gradients {
        return {ops::scale(dy, 3)};
      });
    };
    const Tensor x = leaf({1, 2});
    const auto body = [&](const Tensor& input) { return ops::square(costly(ops::square(input))); };
    CHECK(costly(x).to_vector() == Values{3, 6});
    runs = 0;
    const Tensor kept = ops::sum(recomputed(x, body, {.keep = {"costly"}}));
    autograd::backward(kept, {.grad_output = {}, .retain_graph = true});
    autograd::backward(kept);
    CHECK(runs == 1);
    CHECK(x.grad().to_vector() == Values{2 * 36 * 1, 2 * 36 * 8});
    runs = 0;
    autograd::backward(ops::sum(recomputed(x, body)));
    CHECK(runs == 2);
    const auto twice = [&](const Tensor& input) { return costly(costly(input)); };
    const Tensor more =
        ops::sum(recomputed(x,
                            changing([&](const Tensor& input) { return ops::exp(costly(input)); },
                                     [&](const Tensor& input) { return ops::exp(twice(input)); }),
                            {.keep = {"costly"}}));
    CHECK_THROWS_WITH_AS(
        autograd::backward(more),
        doctest::Contains("the replay wants kept output 1 of costly, but the forward kept no more"),
        AutogradError);
  }

  TEST_CASE("a name to keep that no op of the forward has is an error, unless it is optional") {
    const auto run = [](const Tensor& x, bool keep_optional) {
      return autograd::recomputed(
                 {x}, [](const Tensors& in) { return Tensors{ops::exp(in[0])}; },
                 {.name = "part", .keep = {"atention"}, .keep_optional = keep_optional})
          .front();
    };
    const Tensor x = leaf({1, 2});
    CHECK_THROWS_WITH_AS(run(x, false),
                         doctest::Contains("recompute of part: the outputs of atention are to be "
                                           "kept, but its forward ran no such op"),
                         AutogradError);
    CHECK_FALSE(autograd::in_region());
    autograd::backward(ops::sum(run(x, true)));
    CHECK(x.grad().to_vector() == ops::exp(x).to_vector());
  }

  TEST_CASE("a replay that reads what it is to bring back is an error that says so") {
    autograd::SavedTensor saved;
    check_replay_fails(
        [&](const Tensor& x) {
          saved = autograd::SavedTensor(ops::exp(x));
          return ops::exp(x);
        },
        [&](const Tensor& x) {
          std::exchange(saved, {}).get();
          return ops::exp(x);
        },
        "recompute of part: the body reads a saved tensor that its replay is to bring back");
  }

  TEST_CASE("a backward within a replay or a region is refused by name") {
    const Tensor x = leaf({1, 2});
    const Tensor other = ops::sum(ops::exp(x));
    const auto exp = [](const Tensor& input) { return ops::exp(input); };
    const Tensor y = ops::sum(recomputed(x, changing(exp, [&](const Tensor& input) {
                                           autograd::backward(other);
                                           return ops::exp(input);
                                         })));
    CHECK_THROWS_WITH_AS(
        autograd::backward(y),
        doctest::Contains("recompute of part: backward: called from within a backward"),
        AutogradError);
    CHECK_THROWS_WITH_AS(recomputed(x,
                                    [&](const Tensor& input) {
                                      autograd::backward(other);
                                      return ops::exp(input);
                                    }),
                         doctest::Contains("backward: called from within a recomputed region"),
                         AutogradError);
    CHECK_FALSE(x.grad().defined());
    autograd::backward(ops::sum(recomputed(x, exp)));
    CHECK(x.grad().to_vector() == ops::exp(x).to_vector());
  }

  TEST_CASE("the body sees the same wishes for gradients and the same history in a replay") {
    const Tensor x = leaf({1, 2});
    const Tensor constant = Tensor::of({3, 4}, DType::Float64);
    std::vector<std::vector<bool>> seen;
    const auto body = [&](const Tensors& inputs) {
      const Tensor product = ops::multiply(inputs[0], inputs[2]);
      const Tensor fixed = ops::multiply(inputs[1], inputs[1]);
      seen.push_back({autograd::replaying(), inputs[0].requires_grad(), inputs[0].is_leaf(),
                      inputs[1].requires_grad(), inputs[2].is_leaf(), product.is_leaf(),
                      fixed.requires_grad(), inputs[3].defined()});
      return Tensors{ops::multiply(product, fixed)};
    };
    const Tensor history = ops::scale(x, 1);
    const Tensor y =
        autograd::recomputed({history, constant, x, Tensor()}, body, {.name = "part", .keep = {}})
            .front();
    autograd::backward(ops::sum(y));
    REQUIRE(seen.size() == 2);
    CHECK(seen[0] == std::vector<bool>{false, true, false, false, true, false, false, false});
    seen[0][0] = true;
    CHECK(seen[1] == seen[0]);
    CHECK(x.grad().to_vector() == Values{2 * 1 * 9, 2 * 2 * 16});
    CHECK_FALSE(autograd::replaying());
  }

  TEST_CASE("outputs of a region that are unused cost a replay of their own later") {
    const Tensor x = leaf({8, 8}, 1);
    const auto body = [](const Tensors& inputs) {
      return Tensors{ops::exp(inputs[0]), ops::tanh(inputs[0])};
    };
    Tensors y = autograd::recomputed({x}, body, {.name = "part", .keep = {}});
    const Tensor first = ops::sum(y[0]);
    const Tensor second = ops::sum(y[1]);
    y.clear();
    const std::int64_t recorded = live_bytes();
    CHECK(autograd::backward(first).replays == 1);
    CHECK(live_bytes() == recorded + 512);
    CHECK(autograd::backward(second).replays == 1);
    const Tensor other = leaf({8, 8}, 1);
    autograd::backward(ops::sum(ops::exp(other)));
    autograd::backward(ops::sum(ops::tanh(other)));
    CHECK(x.grad().to_vector() == other.grad().to_vector());
  }

  TEST_CASE("what a region reads must not change before its replay") {
    const Tensor x = leaf({1, 2});
    const Tensor w = leaf({3, 4});
    const auto changed = [&](const Tensor& target) {
      const Tensor input = ops::scale(x, 1);
      const Tensor y =
          ops::sum(recomputed(input, [&](const Tensor& t) { return ops::exp(ops::add(t, w)); }));
      {
        const autograd::NoGradGuard no_grad;
        ops::fill_(target.defined() ? target : input, 0);
      }
      CHECK_THROWS_WITH_AS(autograd::backward(y),
                           doctest::Contains("backward of exp: recompute of part: a tensor of "
                                             "shape [2] saved for backward was changed in place"),
                           AutogradError);
    };
    changed(w);
    changed(Tensor());
    Block<TinyOwner> block;
    // Only the bias is used: its value is in nobody's saved tensor.
    const Tensor y = ops::sum(recomputed(
        leaf({8}, 1), [&](const Tensor& input) { return ops::exp(ops::add(input, block.bias)); }));
    block.owner.bump_epoch();
    CHECK_THROWS_WITH_AS(autograd::backward(y),
                         doctest::Contains("recompute of part: parameter up.bias was changed "
                                           "between forward and backward (parameter epoch 0"),
                         AutogradError);
  }

  TEST_CASE("without gradients a region is its body") {
    const autograd::NoGradGuard no_grad;
    const Tensor y = recomputed(leaf({1, 2}), [](const Tensor& x) {
      CHECK_FALSE(autograd::in_region());
      return ops::square(x);
    });
    CHECK_FALSE(y.requires_grad());
    CHECK(y.to_vector() == Values{1, 4});
  }

  TEST_CASE("a forward that throws leaves no region open, and its saved tensors are useless") {
    const Tensor x = leaf({1, 2});
    Tensor escaped;
    CHECK_THROWS_AS(recomputed(x,
                               [&](const Tensor& input) -> Tensor {
                                 escaped = ops::sum(ops::exp(input));
                                 fail<ShapeError>("no luck");
                               }),
                    ShapeError);
    CHECK_FALSE(autograd::in_region());
    CHECK_THROWS_WITH_AS(
        autograd::backward(escaped),
        doctest::Contains("recompute of part: a saved tensor was read before its forward was done"),
        AutogradError);
  }

  TEST_CASE("a head with its gradient in forward is refused in a region; the other form works") {
    TinyOwner owner(20, DType::Float32, DType::Float32);
    const Tensor weight = owner.add("head", {5, 4}, random_values(20, 1));
    const Tensor targets = Tensor::zeros({3}, DType::Int64);
    const auto run = [&](ops::HeadForm form, const Mode& mode) {
      const Tensor hidden = random_tensor({3, 4}, 2, 1, DType::Float32).set_requires_grad(true);
      owner.zero_grad();
      autograd::backward(recomputed(
          hidden,
          [&](const Tensor& x) {
            return ops::linear_cross_entropy(ops::gelu(x, ops::GeluForm::Erf), weight, targets,
                                             {.form = form});
          },
          mode));
      return weight.grad().to_vector();
    };
    CHECK_THROWS_WITH_AS(run(ops::HeadForm::GradientInForward, {}),
                         doctest::Contains("linear_cross_entropy: its gradient in forward cannot "
                                           "be computed again"),
                         AutogradError);
    CHECK_FALSE(weight.grad().defined());
    CHECK(run(ops::HeadForm::Recompute, {}) == run(ops::HeadForm::Recompute, {.region = false}));
  }

  TEST_CASE("a graph of many regions is freed without recursion") {
    const std::int64_t before = live_bytes();
    {
      Tensor y = leaf({1});
      for (int i = 0; i < 20'000; ++i) {
        y = recomputed(y, [](const Tensor& x) { return ops::sqrt(x); });
      }
      y = Tensor();
      CHECK(live_bytes() == before);
    }
  }
}

}  // namespace fsdptrain
