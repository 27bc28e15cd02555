#include "tests/support/flat_parameters.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/meta.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/nn/init.h"
#include "runtime/nn/linear.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/view.h"
#include "runtime/optim/adamw.h"
#include "tests/support/contexts.h"
#include "tests/support/grad_check.h"

namespace fsdptrain::testing {
namespace {

Tensor on_meta(const Shape& shape) {
  return nn::unplaced_parameter(shape);
}

// y = fc(x) @ [q; k; v]^T, with a frozen offset; k is registered apart from q and v.
class Net final : public nn::Module {
 public:
  Net() {
    register_module("fc", fc);
    register_parameter("q", q, {.init = nn::Init::normal(0.1)});
    register_parameter("offset", offset, {.init = nn::Init::constant(0.5), .trainable = false});
    register_parameter("v", v, {.init = nn::Init::normal(0.1)});
    register_parameter("unused", unused, {.init = nn::Init::normal(0.1), .decay = false});
    register_parameter("k", k, {.init = nn::Init::normal(0.1)});
    register_adjacent({"q", "k", "v"});
  }

  nn::Linear fc{{.in = 5, .out = 7}};
  Tensor q = on_meta({3, 7});
  Tensor k = on_meta({2, 7});
  Tensor v = on_meta({1, 7});
  Tensor offset = on_meta({6});
  Tensor unused = on_meta({13});

 private:
  Tensor forward(const Tensor& x) override {
    const Tensor stacked = ops::stack_adjacent(std::vector{q, k, v});
    return ops::add(ops::linear(fc(x), stacked), offset);
  }
};

const nn::Segment& segment_of(FlatParameters& owner, const std::string& name) {
  for (const nn::Segment& segment : owner.chunks().at(0).segments) {
    if (segment.name == name) {
      return segment;
    }
  }
  fail("no segment {}", name);
}

Tensor input(DType dtype = DType::Float32) {
  return random_tensor({4, 5}, 11, 1, dtype);
}

}  // namespace

TEST_SUITE("support/flat_parameters") {
  TEST_CASE("every parameter is a window on the flat buffer, under its name") {
    Net net;
    FlatParameters owner(net, {.compute_dtype = {}, .seed = 3});
    REQUIRE(owner.chunks().size() == 1);
    const nn::FlatChunk& chunk = owner.chunks()[0];
    std::vector<std::string> names;
    for (const nn::Segment& segment : chunk.segments) {
      names.push_back(segment.name);
    }
    CHECK(names == std::vector<std::string>{"q", "k", "v", "unused", "fc.weight", "fc.bias"});
    CHECK(owner.named().size() == 7);
    CHECK(owner.num_parameters() == 5 * 7 + 7 + 6 * 7 + 6 + 13);
    CHECK(net.q.storage() == chunk.parameters.storage());
    CHECK(net.q.requires_grad());
    CHECK(net.q.autograd_meta()->name == "q");
    CHECK(net.q.autograd_meta()->owner.get() == &owner);
    for (const FlatParameters::Named& named : owner.named()) {
      const Tensor expected = Tensor::zeros(named.values.shape());
      for (const nn::Parameter& parameter : net.parameters()) {
        if (parameter.name == named.name) {
          CHECK(parameter.tensor->view().data == named.values.view().data);
          nn::initialize(expected, named.name, parameter.spec.init, 3);
        }
      }
      CHECK(named.values.to_vector() == expected.to_vector());
    }
    CHECK(owner.find("offset").values.to_vector() == std::vector<double>(6, 0.5));
    CHECK_THROWS_WITH_AS(owner.find("nobody"),
                         doctest::Contains("flat parameters: there is no parameter nobody"), Error);
  }

  TEST_CASE("parameters start on granules, adjacent ones follow without gaps") {
    Net net;
    FlatParameters owner(net, {});
    const auto& q = segment_of(owner, "q");
    const auto& k = segment_of(owner, "k");
    const auto& v = segment_of(owner, "v");
    CHECK(q.end - q.begin == 21);
    CHECK(k.begin == q.end);
    CHECK(v.begin == k.end);
    for (const char* name : {"q", "unused", "fc.weight", "fc.bias"}) {
      CHECK(segment_of(owner, name).begin % 128 == 0);
    }
    CHECK_FALSE(segment_of(owner, "unused").decay);
    CHECK_FALSE(segment_of(owner, "fc.bias").decay);
    CHECK(segment_of(owner, "q").decay);
  }

  TEST_CASE("gradients are written into the flat buffer, and gaps stay zero over steps") {
    Net net;
    FlatParameters owner(net, {});
    nn::FlatChunk& chunk = owner.chunks()[0];
    optim::AdamW optimizer(owner.chunks(), {});
    const std::vector<double> unused = net.unused.to_vector();
    for (int step = 0; step < 3; ++step) {
      owner.zero_grad();
      const auto stats = autograd::backward(ops::sum(ops::square(net(input()))));
      CHECK(stats.slot_elements_added == 0);
      owner.mark_active_segments();
      optimizer.step(owner.chunks(), 0.01, {});
      owner.bump_epoch();
    }
    CHECK(net.q.grad().view().data == owner.find("q").gradient.view().data);
    CHECK(net.fc.parameters()[0].tensor->grad().storage() == chunk.gradients.storage());
    CHECK_FALSE(net.unused.grad().defined());
    CHECK(net.unused.to_vector() == unused);
    CHECK_FALSE(segment_of(owner, "unused").active);
    CHECK(segment_of(owner, "k").active);
    CHECK(segment_of(owner, "k").step == 3);
    CHECK(segment_of(owner, "unused").step == 0);
    std::vector<bool> owned(static_cast<std::size_t>(chunk.parameters.numel()));
    for (const nn::Segment& segment : chunk.segments) {
      std::fill(owned.begin() + segment.begin, owned.begin() + segment.end, true);
    }
    std::int64_t gaps = 0;
    std::int64_t dirty = 0;
    for (std::int64_t i = 0; i < chunk.parameters.numel(); ++i) {
      if (!owned[static_cast<std::size_t>(i)]) {
        ++gaps;
        dirty += chunk.parameters.item(i) != 0 || chunk.gradients.item(i) != 0 ||
                 optimizer.states()[0].values.item(i) != 0 ||
                 optimizer.states()[1].values.item(i) != 0;
      }
    }
    CHECK(gaps > 100);
    CHECK(dirty == 0);
  }

  TEST_CASE("gradients add up until zero_grad forgets them") {
    Net net;
    FlatParameters owner(net, {.seed = 5});
    const auto after_backward = [&] {
      autograd::backward(ops::sum(ops::square(net(input()))));
      return owner.find("q").gradient.item(0);
    };
    const double once = after_backward();
    CHECK(once != 0);
    CHECK(after_backward() == 2 * once);
    owner.zero_grad();
    CHECK(after_backward() == once);
  }

  TEST_CASE("gradients in float64 match finite differences through the flat buffer") {
    Net net;
    FlatParameters owner(net, {.dtype = DType::Float64, .compute_dtype = {}, .seed = 5});
    const Tensor x = input(DType::Float64);
    const auto loss = [&] { return ops::sum(ops::square(net(x))); };
    autograd::backward(loss());
    for (const FlatParameters::Named& named : owner.named()) {
      if (!named.gradient.defined() || named.name == "unused") {
        continue;
      }
      Tensor values = named.values;
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        const double value = values.item(i);
        values.set_item(i, value + 1e-5);
        const double above = loss().item();
        values.set_item(i, value - 1e-5);
        const double below = loss().item();
        values.set_item(i, value);
        CAPTURE(named.name);
        CAPTURE(i);
        CHECK(named.gradient.item(i) ==
              doctest::Approx((above - below) / 2e-5).epsilon(1e-7).scale(1));
      }
    }
  }

  TEST_CASE("a bfloat16 compute copy is recast once per epoch") {
    Net net;
    FlatParameters owner(net, {.compute_dtype = DType::BFloat16});
    CHECK(net.q.dtype() == DType::BFloat16);
    CHECK(owner.find("q").values.dtype() == DType::Float32);
    CHECK(owner.find("q").gradient.dtype() == DType::Float32);
    const Tensor x = input(DType::BFloat16);
    const Tensor y = net(x);
    CHECK(y.dtype() == DType::BFloat16);
    CHECK(net.q.item(0) == Tensor::of({owner.find("q").values.item(0)}, DType::BFloat16).item());
    Tensor master = owner.find("q").values;
    master.set_item(0, 42);
    net(x);
    CHECK(net.q.item(0) != 42);
    owner.bump_epoch();
    CHECK_THROWS_WITH_AS(autograd::backward(ops::sum(y)),
                         doctest::Contains("was changed between forward and backward"),
                         AutogradError);
    const Tensor again = net(x);
    CHECK(net.q.item(0) == 42);
    CHECK(net.offset.item(0) == 0.5);
    autograd::backward(ops::sum(again));
    CHECK(net.q.grad().dtype() == DType::Float32);
    CHECK(net.q.grad().view().data == owner.find("q").gradient.view().data);
  }

  TEST_CASE("float32 compute under float64 parameters gathers float64 gradients") {
    Net net;
    FlatParameters owner(net, {.dtype = DType::Float64, .compute_dtype = DType::Float32});
    autograd::backward(ops::sum(net(input())));
    Net other;
    FlatParameters reference(other, {.dtype = DType::Float64, .compute_dtype = {}});
    autograd::backward(ops::sum(other(input(DType::Float64))));
    for (const char* name : {"q", "k", "v", "fc.weight", "fc.bias"}) {
      CAPTURE(name);
      expect_close(owner.find(name).gradient, reference.find(name).gradient.to_vector(), 1e-5);
    }
  }

  TEST_CASE("a frozen parameter is placed but takes no gradient") {
    Net net;
    const FlatParameters owner(net, {});
    CHECK_FALSE(net.offset.requires_grad());
    CHECK_FALSE(owner.find("offset").gradient.defined());
    CHECK(net.offset.storage() != net.q.storage());
  }

  TEST_CASE("a module has one owner") {
    Net net;
    const FlatParameters owner(net, {});
    CHECK_THROWS_WITH_AS(FlatParameters(net, {}),
                         doctest::Contains("flat parameters: q has an owner already"),
                         AutogradError);
  }

  TEST_CASE("a graph or a module that is used after its owner is a named error") {
    Net net;
    Tensor y;
    {
      const FlatParameters owner(net, {});
      y = ops::sum(net(input()));
    }
    CHECK_THROWS_WITH_AS(autograd::backward(y),
                         doctest::Contains("is gone: it must live until the last backward"),
                         AutogradError);
    CHECK_THROWS_WITH_AS(net(input()), doctest::Contains("is gone"), AutogradError);
  }

  TEST_CASE("a replay opens no invocation, and notices another epoch") {
    const auto train = [](nn::Recompute policy) {
      Net net;
      FlatParameters owner(net, {.seed = 5});
      net.set_recompute(policy);
      std::uint64_t within = 77;
      net.add_hooks({.pre_forward =
                         [&](nn::Module::Tensors&) {
                           if (autograd::replaying()) {
                             within = owner.current_invocation().id;
                           }
                         },
                     .post_forward = {}});
      const Tensor y = net(input());
      CHECK(owner.current_invocation().id == 0);
      const auto stats = autograd::backward(ops::sum(ops::square(y)));
      CHECK(stats.replays == (policy == nn::Recompute::None ? 0 : 1));
      CHECK(within == (policy == nn::Recompute::None ? 77 : 0));
      net.remove_hooks(nullptr);
      const Tensor stale = net(input());
      // One replay later the next forward is the second.
      owner.begin_invocation();
      CHECK(owner.current_invocation().id == 3);
      owner.end_invocation();
      owner.bump_epoch();
      CHECK_THROWS_WITH_AS(autograd::backward(ops::sum(stale)),
                           doctest::Contains("was changed between forward and backward"),
                           AutogradError);
      return owner.chunks()[0].gradients.to_vector();
    };
    const auto expected = train(nn::Recompute::None);
    CHECK(train(nn::Recompute::Selective) == expected);
    CHECK(train(nn::Recompute::Full) == expected);
  }

  TEST_CASE("a failed forward leaves no invocation open") {
    Net net;
    FlatParameters owner(net, {});
    CHECK_THROWS_AS(net(Tensor::zeros({4, 6})), ShapeError);
    CHECK(owner.current_invocation().id == 0);
    net(input());
    CHECK(owner.current_invocation().id == 0);
  }

  TEST_CASE("steps on meta take no host memory and count the same bytes") {
    std::vector<MemoryCounters> counters;
    for (const Device device : {Device::cpu(), Device::meta()}) {
      RankContext context({.threads = 2, .isa = {}, .log_prefix = {}});
      const ContextGuard bound(context);
      Net net;
      FlatParameters owner(net, {.device = device, .compute_dtype = DType::BFloat16});
      optim::AdamW optimizer(owner.chunks(), {});
      // From here on: a module is built on meta, whatever device it is for.
      context.allocator(device).reset_peaks();
      for (int step = 0; step < 2; ++step) {
        const Tensor x = Tensor::zeros({4, 5}, DType::BFloat16, device);
        autograd::backward(ops::sum(ops::square(net(x))));
        owner.mark_active_segments();
        optimizer.step(owner.chunks(), 0.1,
                       optim::clip_factor(optim::gradient_norm(owner.chunks()), 1));
        owner.bump_epoch();
        owner.zero_grad();
      }
      counters.push_back(context.allocator(device).counters());
    }
    CHECK(counters[0].live == counters[1].live);
    CHECK(counters[0].peak == counters[1].peak);
    CHECK(counters[0].peak_total == counters[1].peak_total);
    CHECK(counters[0].peak_of(MemoryCategory::Activation) > 0);
    const MemoryCounters before = current_context().allocator(Device::cpu()).counters();
    Net net;
    const FlatParameters owner(net, {.device = Device::meta(), .compute_dtype = {}});
    CHECK(current_context().allocator(Device::cpu()).counters() == before);
  }
}

}  // namespace fsdptrain::testing
