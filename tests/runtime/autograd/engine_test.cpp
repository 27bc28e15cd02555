#include "runtime/autograd/engine.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/inplace.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "tests/support/grad_check.h"

namespace fsdptrain {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using Values = std::vector<double>;

Tensor leaf(std::initializer_list<double> values) {
  Tensor x = Tensor::of(values, DType::Float64);
  x.set_requires_grad(true);
  return x;
}

std::int64_t live_bytes() {
  return current_context().allocator(Device::cpu()).counters().live_total;
}

// The identity as a recorded op that appends its name to `log` in backward.
Tensor logged(const char* name, const Tensor& x, std::vector<std::string>& log) {
  return autograd::record(name, x.detach(), {x},
                          [name, &log](const Tensor& dy, GradientSink&) -> Gradients {
                            log.emplace_back(name);
                            return {dy};
                          });
}

}  // namespace

TEST_SUITE("runtime/autograd/engine") {
  TEST_CASE("a tensor used twice receives both gradients") {
    const Tensor x = leaf({3});
    autograd::backward(ops::multiply(x, x));
    CHECK(x.grad().to_vector() == Values{6});
  }

  TEST_CASE("a diamond runs its shared node once") {
    const Tensor x = leaf({2, 5});
    const Tensor shared = ops::scale(x, 3);
    const Tensor y = ops::add(ops::scale(shared, 2), ops::multiply(shared, shared));
    const auto stats = autograd::backward(y, {.grad_output = Tensor::of({1, 10}, DType::Float64)});
    CHECK(stats.nodes == 4);
    CHECK(x.grad().to_vector() == Values{3 * (2 + 2 * 6), 10 * 3 * (2 + 2 * 15)});
  }

  TEST_CASE("nodes run in reverse order of creation") {
    std::vector<std::string> log;
    const Tensor x = leaf({1});
    const Tensor a = logged("a", x, log);
    const Tensor b = logged("b", x, log);
    const Tensor c = logged("c", a, log);
    const Tensor d = logged("d", b, log);
    autograd::backward(ops::add(c, ops::add(d, a)));
    CHECK(log == std::vector<std::string>{"d", "c", "b", "a"});
    CHECK(x.grad().item() == 3);
  }

  TEST_CASE("a post-accumulate hook runs once, after the last contribution") {
    const Tensor x = leaf({2});
    Values seen;
    x.autograd_meta()->post_accumulate_hooks.emplace_back([&] { seen.push_back(x.grad().item()); });
    const Tensor y = ops::add(ops::add(ops::square(x), ops::scale(x, 10)), x);
    autograd::backward(y);
    CHECK(seen == Values{4 + 10 + 1});
    autograd::backward(ops::scale(x, 100));
    CHECK(seen == Values{15, 115});
  }

  TEST_CASE("a pre-backward hook runs between the gradient of a tensor and its producer") {
    std::vector<std::string> log;
    const Tensor x = leaf({1});
    const Tensor middle = logged("producer", x, log);
    middle.autograd_meta()->pre_backward_hooks.emplace_back([&] { log.emplace_back("hook"); });
    autograd::backward(logged("second", logged("first", middle, log), log));
    CHECK(log == std::vector<std::string>{"second", "first", "hook", "producer"});
  }

  TEST_CASE("hooks may add and remove hooks of their own tensor, from the next pass on") {
    const Tensor x = leaf({2});
    const Tensor y = ops::square(x);
    for (auto* hooks :
         {&y.autograd_meta()->pre_backward_hooks, &x.autograd_meta()->pre_backward_hooks,
          &x.autograd_meta()->post_accumulate_hooks}) {
      int runs = 0;
      int added_runs = 0;
      hooks->clear();
      hooks->emplace_back([hooks, &runs, &added_runs, text = std::string(100, 'x')] {
        for (int i = 0; i < 100; ++i) {
          hooks->emplace_back([&added_runs] { ++added_runs; });
        }
        // The hook itself is still whole, although the list has moved.
        runs += text == std::string(100, 'x') ? 1 : 0;
      });
      autograd::backward(y, {.grad_output = {}, .retain_graph = true});
      CHECK(runs == 1);
      CHECK(added_runs == 0);
      autograd::backward(y, {.grad_output = {}, .retain_graph = true});
      CHECK(added_runs == 100);
      hooks->clear();
    }
    int runs = 0;
    y.autograd_meta()->pre_backward_hooks = {[&] { y.autograd_meta()->pre_backward_hooks.clear(); },
                                             [&runs] { ++runs; }};
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    CHECK(runs == 1);
    autograd::backward(y);
    CHECK(runs == 1);
  }

  TEST_CASE("queued callbacks run at the end, those queued by callbacks too") {
    std::vector<std::string> log;
    const Tensor x = leaf({1});
    const Tensor middle = logged("b", logged("a", x, log), log);
    middle.autograd_meta()->pre_backward_hooks.emplace_back([&log] {
      for (const char* name : {"first", "second"}) {
        autograd::queue_callback([&log, name] {
          autograd::queue_callback([&log] { log.emplace_back("nested"); });
          log.emplace_back(name);
        });
      }
    });
    x.autograd_meta()->post_accumulate_hooks.emplace_back([&] { log.emplace_back("leaf"); });
    autograd::backward(middle);
    CHECK(log == std::vector<std::string>{"b", "a", "leaf", "first", "second", "nested", "nested"});
    CHECK_THROWS_WITH_AS(autograd::queue_callback([] {}),
                         doctest::Contains("queue_callback: no backward is under way"),
                         AutogradError);
  }

  TEST_CASE("a backward within a backward is refused, and the next one works") {
    const Tensor x = leaf({1});
    const Tensor y = ops::scale(x, 2);
    const Tensor other = ops::scale(x, 3);
    y.autograd_meta()->pre_backward_hooks.emplace_back([&] { autograd::backward(other); });
    CHECK_THROWS_WITH_AS(autograd::backward(y),
                         doctest::Contains("backward: called from within a backward"),
                         AutogradError);
    CHECK_FALSE(x.grad().defined());
    autograd::backward(other);
    CHECK(x.grad().item() == 3);
  }

  TEST_CASE("a second backward needs a retained graph, and then accumulates") {
    const Tensor x = leaf({3});
    const Tensor y = ops::square(x);
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    CHECK(x.grad().item() == 12);
    autograd::backward(y);
    CHECK(x.grad().item() == 18);
    CHECK_THROWS_WITH_AS(
        autograd::backward(y),
        doctest::Contains(
            "backward of square: the graph was freed by an earlier backward: pass retain_graph"),
        AutogradError);
    CHECK(x.grad().item() == 18);
  }

  TEST_CASE("one backward serves two forwards, and graphs may share leaves") {
    const Tensor x = leaf({3});
    autograd::backward(ops::add(ops::square(x), ops::scale(x, 5)));
    CHECK(x.grad().item() == 11);
    const Tensor a = ops::square(x);
    const Tensor b = ops::scale(x, 5);
    autograd::backward(b);
    autograd::backward(a);
    CHECK(x.grad().item() == 22);
  }

  TEST_CASE("the gradient of a leaf has bytes of its own") {
    const Tensor a = leaf({1, 2});
    const Tensor b = leaf({3, 4});
    const Tensor upstream = Tensor::of({5, 6}, DType::Float64);
    autograd::backward(ops::add(a, b), {.grad_output = upstream});
    CHECK(a.grad().storage() != b.grad().storage());
    CHECK(a.grad().storage() != upstream.storage());
    const Tensor big = leaf({1, 2, 3, 4});
    autograd::backward(
        ops::transpose(ops::reshape(big, {2, 2}), 0, 1),
        {.grad_output = Tensor::of({1, 2, 3, 4}, DType::Float64).alias({2, 2}, {2, 1}, 0)});
    CHECK(big.grad().to_vector() == Values{1, 3, 2, 4});
    CHECK(big.grad().is_contiguous());
  }

  TEST_CASE("a graph dies with its output, run or not") {
    const std::int64_t before = live_bytes();
    for (const bool run : {false, true}) {
      Tensor x = leaf({1, 2, 3});
      Tensor y = ops::sum(ops::sqrt(ops::square(ops::multiply(x, ops::scale(x, 2)))));
      if (run) {
        autograd::backward(y);
        x.zero_grad();
      }
      CHECK(live_bytes() > before + 64);
      y = Tensor();
      CHECK(live_bytes() == before + 64);
      x = Tensor();
      CHECK(live_bytes() == before);
    }
  }

  TEST_CASE("backward frees what it ran unless the graph is retained") {
    const Tensor x = leaf({1, 2, 3});
    const Tensor y = ops::sum(ops::square(ops::scale(x, 2)));
    const std::int64_t recorded = live_bytes();
    autograd::backward(y, {.grad_output = {}, .retain_graph = true});
    CHECK(live_bytes() == recorded + 64);
    autograd::backward(y);
    CHECK(live_bytes() == recorded);
  }

  TEST_CASE("an output saved for its own backward does not keep the graph alive") {
    const std::int64_t before = live_bytes();
    {
      const Tensor x = leaf({1, 2, 3});
      const Tensor y = ops::sqrt(x);
    }
    CHECK(live_bytes() == before);
  }

  TEST_CASE("a saved tensor changed in place is a named error") {
    const Tensor x = leaf({1, 2});
    const Tensor middle = ops::scale(x, 2);
    const Tensor y = ops::sum(ops::square(middle));
    {
      const autograd::NoGradGuard no_grad;
      ops::fill_(middle, 0);
    }
    CHECK_THROWS_WITH_AS(
        autograd::backward(y),
        doctest::Contains("backward of square: a tensor of shape [2] saved for backward was "
                          "changed in place (version 0 then, 1 now)"),
        AutogradError);
  }

  TEST_CASE("half a million chained ops run and are freed without recursion") {
#if defined(__SANITIZE_THREAD__)
    constexpr int kOps = 20'000;  // slow there, and the stack is no matter of threads
#else
    constexpr int kOps = 500'000;
#endif
    const std::int64_t before = live_bytes();
    for (const bool run : {true, false}) {
      const Tensor x = leaf({1});
      const Tensor zero = Tensor::of({0}, DType::Float64);
      Tensor y = x;
      for (int i = 0; i < kOps; ++i) {
        y = ops::add(y, zero);
      }
      if (run) {
        CHECK(autograd::backward(y).nodes == kOps);
        CHECK(x.grad().item() == 1);
      }
    }
    CHECK(live_bytes() == before);
  }

  TEST_CASE("a deep graph with two paths at every step is freed without recursion") {
    const Tensor x = leaf({0});
    Tensor y = x;
    for (int i = 0; i < 100'000; ++i) {
      y = ops::add(y, y);
    }
    y = Tensor();
    CHECK(x.autograd_meta().use_count() == 1);
  }

  TEST_CASE("an error in a closure keeps its type, frees everything and ends the pass") {
    const std::int64_t before = live_bytes();
    {
      const Tensor x = leaf({1, 2});
      const std::int64_t with_leaf = live_bytes();
      {
        const Tensor failing = autograd::record("failing", Tensor::of({1, 1}, DType::Float64), {x},
                                                [](const Tensor&, GradientSink&) -> Gradients {
                                                  fail<ShapeError>("this closure fails with {}", 7);
                                                });
        const Tensor y = ops::sum(ops::square(failing));
        CHECK_THROWS_WITH_AS(autograd::backward(y),
                             doctest::Contains("backward of failing: this closure fails with 7"),
                             ShapeError);
      }
      CHECK_FALSE(x.grad().defined());
      CHECK(live_bytes() == with_leaf);
      const Tensor foreign = autograd::record(
          "foreign", Tensor::of({1, 1}, DType::Float64), {x},
          [](const Tensor&, GradientSink&) -> Gradients { throw std::runtime_error("not ours"); });
      CHECK_THROWS_WITH_AS(autograd::backward(ops::sum(foreign)), "not ours", std::runtime_error);
      CHECK(autograd::grad_enabled());
      autograd::backward(ops::sum(ops::square(x)));
      CHECK(x.grad().to_vector() == Values{2, 4});
    }
    CHECK(live_bytes() == before);
  }

  TEST_CASE("a closure that returns the wrong gradients is named") {
    const Tensor x = leaf({1, 2});
    const auto with = [&](const Gradients& gradients) {
      return autograd::record(
          "wrong", Tensor::of({1, 1}, DType::Float64), {x},
          [gradients](const Tensor&, GradientSink&) -> Gradients { return gradients; });
    };
    const Tensor ones = Tensor::of({1, 1}, DType::Float64);
    CHECK_THROWS_WITH_AS(autograd::backward(with({ones, ones}), {.grad_output = ones}),
                         doctest::Contains("backward of wrong: returned 2 gradients for 1 inputs"),
                         AutogradError);
    CHECK_THROWS_WITH_AS(
        autograd::backward(with({Tensor::of({1}, DType::Float64)}), {.grad_output = ones}),
        doctest::Contains("a gradient of shape [1] and float64 came for a tensor of shape [2]"),
        ShapeError);
    CHECK_THROWS_WITH_AS(autograd::backward(with({Tensor::of({1, 1})}), {.grad_output = ones}),
                         doctest::Contains("a gradient of shape [2] and float32 came for"),
                         ShapeError);
  }

  TEST_CASE("a closure that posts and returns a gradient for one input is named") {
    const Tensor x = leaf({1, 2});
    const Tensor twice = autograd::record(
        "twice", x.detach(), {x}, [](const Tensor& dy, GradientSink& sink) -> Gradients {
          sink.post(0, [&](const autograd::GradientTarget& target) {
            ops::copy_(target.destination, dy);
          });
          return {dy};
        });
    CHECK_THROWS_WITH_AS(
        autograd::backward(twice, {.grad_output = Tensor::of({1, 1}, DType::Float64)}),
        doctest::Contains("backward of twice: posted a gradient for input 0 and returned another"),
        AutogradError);
    CHECK_FALSE(x.grad().defined());
  }

  TEST_CASE("what the engine allocates for a leaf counts as gradient memory") {
    const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
    const std::int64_t before = counters.live_of(MemoryCategory::Gradient);
    const Tensor x = leaf({1, 2});
    const Tensor ones = Tensor::of({1, 1}, DType::Float64);
    autograd::backward(ops::add(x, x), {.grad_output = ones});
    CHECK(counters.live_of(MemoryCategory::Gradient) == before + 64);
    const Tensor y = leaf({1, 2});
    autograd::backward(ops::add(y, leaf({1, 2})), {.grad_output = ones});
    CHECK(counters.live_of(MemoryCategory::Gradient) == before + 128);
    autograd::backward(ops::scale(y, 2), {.grad_output = ones});
    CHECK(y.grad().to_vector() == Values{3, 3});
    CHECK(counters.live_of(MemoryCategory::Gradient) == before + 128);
  }

  TEST_CASE("an undefined gradient passes through and reaches every leaf's hook") {
    const Tensor x = leaf({1, 2});
    const Tensor other = leaf({3, 4});
    int runs = 0;
    x.autograd_meta()->post_accumulate_hooks.emplace_back([&] { ++runs; });
    const Tensor cut =
        autograd::record("cut", Tensor::of({1, 1}, DType::Float64), {ops::square(x)},
                         [](const Tensor&, GradientSink&) -> Gradients { return {Tensor()}; });
    const Tensor ones = Tensor::of({1, 1}, DType::Float64);
    const auto stats = autograd::backward(ops::add(cut, other), {.grad_output = ones});
    CHECK(stats.nodes == 3);
    CHECK(runs == 1);
    CHECK_FALSE(x.grad().defined());
    CHECK(other.grad().to_vector() == Values{1, 1});
  }

  TEST_CASE("nothing is recorded under NoGradGuard, and guards nest") {
    const Tensor x = leaf({1});
    {
      const autograd::NoGradGuard outer;
      {
        const autograd::NoGradGuard inner;
        CHECK_FALSE(ops::square(x).requires_grad());
      }
      CHECK_FALSE(ops::square(x).requires_grad());
      CHECK_FALSE(ops::reshape(x, {1, 1}).requires_grad());
    }
    CHECK(ops::square(x).requires_grad());
    CHECK_FALSE(ops::square(x.detach()).requires_grad());
    CHECK_FALSE(ops::square(x).is_leaf());
  }

  TEST_CASE("a tensor with history becomes no leaf and keeps no gradient") {
    const Tensor x = leaf({1, 2});
    Tensor y = ops::square(x);
    CHECK_THROWS_WITH_AS(
        y.set_requires_grad(true),
        doctest::Contains("requires_grad: a tensor of shape [2] with history is no leaf"),
        AutogradError);
    CHECK_THROWS_WITH_AS(y.grad(), doctest::Contains("grad: the tensor of shape [2] is no leaf"),
                         AutogradError);
    y = y.detach();
    CHECK_FALSE(y.set_requires_grad(true).grad().defined());
    CHECK(y.set_requires_grad(true).requires_grad());
  }

  TEST_CASE("a root must require grad, and grad_output must fit it") {
    const Tensor x = leaf({1, 2});
    const Tensor y = ops::square(x);
    const auto with = [&](const Tensor& grad_output) {
      autograd::backward(y, {.grad_output = grad_output});
    };
    CHECK_THROWS_WITH_AS(autograd::backward(x.detach()),
                         doctest::Contains("backward: the root requires no grad"), AutogradError);
    CHECK_THROWS_AS(autograd::backward(Tensor()), AutogradError);
    CHECK_THROWS_WITH_AS(autograd::backward(y),
                         doctest::Contains("a root of shape [2] needs grad_output"), ShapeError);
    CHECK_THROWS_WITH_AS(with(Tensor::of({1, 2, 3}, DType::Float64)),
                         doctest::Contains("the root has shape [2] but grad_output [3]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(with(Tensor::of({1, 2})),
                         doctest::Contains("the root is float64 but grad_output float32"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(with(Tensor::zeros({2}, DType::Float64, Device::meta())),
                         doctest::Contains("the root is on cpu but grad_output on meta"),
                         DeviceError);
    CHECK_FALSE(x.grad().defined());
    with(Tensor::of({1, 1}, DType::Float64));
    CHECK(x.grad().to_vector() == Values{2, 4});
    autograd::backward(x, {.grad_output = Tensor::of({1, 1}, DType::Float64)});
    CHECK(x.grad().to_vector() == Values{3, 5});
  }

  TEST_CASE("a hook may drop the last handle of the root") {
    Tensor a = Tensor::of({2, 3});
    a.set_requires_grad(true);
    Tensor root = ops::sum(ops::multiply(ops::exp(a), a));
    a.autograd_meta()->post_accumulate_hooks.emplace_back([&] { root = Tensor(); });
    root.autograd_meta()->pre_backward_hooks.emplace_back([&] { root = Tensor(); });
    autograd::backward(root);
    CHECK_FALSE(root.defined());
    CHECK(a.grad().defined());
  }

  TEST_CASE("a hook that takes itself away keeps no other from running") {
    Tensor a = Tensor::of({2});
    a.set_requires_grad(true);
    auto& hooks = a.autograd_meta()->post_accumulate_hooks;
    std::vector<int> ran;
    hooks.emplace_back([&] {
      ran.push_back(1);
      hooks.erase(hooks.begin());
    });
    hooks.emplace_back([&] { ran.push_back(2); });
    hooks.emplace_back([&] { ran.push_back(3); });
    autograd::backward(ops::square(a));
    autograd::backward(ops::square(a));
    CHECK(ran == std::vector<int>{1, 2, 3, 2, 3});
  }
}

}  // namespace fsdptrain
