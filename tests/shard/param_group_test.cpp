#include "shard/param_group.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/run_ranks.h"
#include "runtime/optim/adamw.h"
#include "tests/support/sharded_net.h"

namespace fsdptrain::shard {
namespace {

using comm::World;
using testing::difference;
using testing::Of;
using testing::on_ranks;
using testing::Sharded;
using testing::sum_over_ranks;
using testing::Unsharded;
using testing::Values;

// net(x)^2 as a module of its own.
class Around final : public nn::Module {
 public:
  Around() { register_module("net", net); }

  testing::Net net;

 private:
  Tensor forward(const Tensor& x) override {
    const Tensor y = net(x);
    return ops::multiply(y, y);
  }
};

constexpr std::int64_t kTrained = 5 * 7 + 7 + 7 * 3 + 3 + 11;

}  // namespace

TEST_SUITE("shard/param_group") {
  TEST_CASE("each rank initialises its part as one rank initialises the whole") {
    on_ranks([](World& world) {
      const Sharded<> sharded(world, {.seed = 5});
      Unsharded<> whole({.seed = 5});
      const testing::Difference found = difference(sharded, Of::Parameters, whole.values());
      CHECK(found.largest == 0);
      CHECK(sum_over_ranks(world, found.numel) == kTrained + 7);
    });
  }

  TEST_CASE("float32 gradients are the sum of those of all ranks in tree order, bit for bit") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.gradient_divide_factor = 1, .seed = 5});
      Unsharded<> whole({.seed = 5});
      autograd::backward(sharded.loss(0));
      const testing::Difference found =
          difference(sharded, Of::Gradients, whole.sum_of_gradients(world.size(), 0));
      CHECK(found.largest == 0);
      CHECK(sum_over_ranks(world, found.numel) == kTrained);
    });
  }

  TEST_CASE("float64 gradients are the mean over ranks, to 1e-12") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.dtype = DType::Float64, .seed = 5});
      Unsharded<> whole({.dtype = DType::Float64, .seed = 5});
      autograd::backward(sharded.loss(0));
      Values mean = whole.sum_of_gradients(world.size(), 0);
      double scale = 0;
      for (auto& [name, values] : mean) {
        for (double& value : values) {
          value /= world.size();
          scale = std::max(scale, std::abs(value));
        }
      }
      CHECK(scale > 1);
      CHECK(difference(sharded, Of::Gradients, mean).largest <= 1e-12 * scale);
    });
  }

  TEST_CASE("the mean is the sum times one over the number of ranks, rounded once") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.seed = 5});
      Unsharded<> whole({.seed = 5});
      autograd::backward(sharded.loss(0));
      Values mean = whole.sum_of_gradients(world.size(), 0);
      const float factor = 1.0F / static_cast<float>(world.size());
      for (auto& [name, values] : mean) {
        std::ranges::for_each(values, [factor](double& value) {
          value = static_cast<double>(static_cast<float>(value) * factor);
        });
      }
      CHECK(difference(sharded, Of::Gradients, mean).largest == 0);
    });
  }

  TEST_CASE("a divide factor divides the sum over the ranks, of one rank too") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.dtype = DType::Float64, .gradient_divide_factor = 4, .seed = 5});
      Unsharded<> whole({.dtype = DType::Float64, .seed = 5});
      autograd::backward(sharded.loss(0));
      Values quarter = whole.sum_of_gradients(world.size(), 0);
      for (auto& [name, values] : quarter) {
        std::ranges::for_each(values, [](double& value) { value /= 4; });
      }
      CHECK(difference(sharded, Of::Gradients, quarter).largest <= 1e-12);
    });
  }

  TEST_CASE("AdamW on the chunks is AdamW on the whole, bit for bit over several steps") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.gradient_divide_factor = 1, .seed = 5});
      optim::AdamW optimizer(sharded.group.chunks(), {.weight_decay = 0.1});
      Unsharded<> whole({.seed = 5});
      optim::AdamW reference(whole.owner().chunks(), {.weight_decay = 0.1});
      for (int step = 0; step < 4; ++step) {
        sharded.group.zero_grad();
        autograd::backward(sharded.loss(step));
        sharded.group.mark_active_segments();
        optimizer.step(sharded.group.chunks(), 0.01, {});
        sharded.group.bump_epoch();
        whole.set_gradients(whole.sum_of_gradients(world.size(), step));
        reference.step(whole.owner().chunks(), 0.01, {});
        whole.owner().bump_epoch();
      }
      const testing::Difference found = difference(sharded, Of::Parameters, whole.values());
      CHECK(found.largest == 0);
    });
  }

  TEST_CASE("delays of ranks change no bit") {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      CAPTURE(seed);
      comm::run_ranks({.num_ranks = 3, .delay_seed = seed}, [](World& world) {
        Sharded<> sharded(world, {.gradient_divide_factor = 1, .seed = 5});
        Unsharded<> whole({.seed = 5});
        autograd::backward(sharded.loss(0));
        const Values expected = whole.sum_of_gradients(world.size(), 0);
        CHECK(difference(sharded, Of::Gradients, expected).largest == 0);
      });
    }
  }

  TEST_CASE("bfloat16 compute over float32 chunks equals that of one rank, bit for bit") {
    on_ranks([](World& world) {
      Sharded<> sharded(
          world,
          {.policy = {.param_dtype = DType::BFloat16}, .gradient_divide_factor = 1, .seed = 5});
      Unsharded<> whole({.compute_dtype = DType::BFloat16, .seed = 5});
      CHECK(sharded.net.a.weight().dtype() == DType::BFloat16);
      autograd::backward(sharded.loss(0));
      const testing::Difference found =
          difference(sharded, Of::Gradients, whole.sum_of_gradients(world.size(), 0));
      CHECK(found.largest == 0);
    });
  }

  TEST_CASE("backwards add up until zero_grad forgets them") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.dtype = DType::Float64, .gradient_divide_factor = 1, .seed = 5});
      Unsharded<> whole({.dtype = DType::Float64, .seed = 5});
      const Values first = whole.sum_of_gradients(world.size(), 0);
      const Values second = whole.sum_of_gradients(world.size(), 1);
      Values both = first;
      for (auto& [name, values] : both) {
        values = testing::added(values, second.at(name), DType::Float64);
      }
      const auto run = [&](int step) { autograd::backward(sharded.loss(step)); };
      run(0);
      run(1);
      CHECK(difference(sharded, Of::Gradients, both).largest <= 1e-12);
      sharded.group.zero_grad();
      run(1);
      CHECK(difference(sharded, Of::Gradients, second).largest <= 1e-12);
    });
  }

  TEST_CASE("two forwards and one backward reduce twice and hold nothing afterwards") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.dtype = DType::Float64, .gradient_divide_factor = 1, .seed = 5});
      Unsharded<> whole({.dtype = DType::Float64, .seed = 5});
      Values both = whole.sum_of_gradients(world.size(), 0);
      for (const auto& [name, values] : whole.sum_of_gradients(world.size(), 1)) {
        both[name] = testing::added(both[name], values, DType::Float64);
      }
      const Tensor first = sharded.loss(0);
      const Tensor second = sharded.loss(1);
      autograd::backward(ops::add(first, second));
      CHECK(difference(sharded, Of::Gradients, both).largest <= 1e-12);
      CHECK_FALSE(sharded.group.unsharded());
    });
  }

  TEST_CASE("recomputed modules give the same bits") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.gradient_divide_factor = 1, .seed = 5});
      sharded.net.set_recompute(nn::Recompute::Full);
      Unsharded<> whole({.seed = 5});
      autograd::backward(sharded.loss(0));
      CHECK(sharded.group.current_invocation().id == 0);
      const testing::Difference found =
          difference(sharded, Of::Gradients, whole.sum_of_gradients(world.size(), 0));
      CHECK(found.largest == 0);
    });
  }

  TEST_CASE("a group within a larger region that is recomputed gives the same bits, and rests") {
    on_ranks([](World& world) {
      Around around;
      around.set_recompute(nn::Recompute::Full);
      testing::LoneGroup lone(around.net, world.group(), {.gradient_divide_factor = 1, .seed = 5});
      ParamGroup& group = lone.group;
      Unsharded<> whole({.seed = 5});
      Tensor x = testing::batch_of(world.rank(), 0, DType::Float32);
      // As NetLoss, but within the region.
      x.set_requires_grad(true);
      autograd::backward(ops::sum(around(x)));
      CHECK_FALSE(group.unsharded());
      testing::Difference found;
      found = testing::difference_of(group, world.rank(), Of::Gradients,
                                     whole.sum_of_gradients(world.size(), 0));
      CHECK(found.largest == 0);
      CHECK(sum_over_ranks(world, found.numel) == kTrained);
    });
  }

  TEST_CASE("parameters that no backward reaches have no gradient, and the optimizer skips them") {
    on_ranks([](World& world) {
      Sharded<> sharded(world, {.seed = 5});
      autograd::backward(sharded.loss(0));
      sharded.group.mark_active_segments();
      std::int64_t num_unused = 0;
      for (const nn::Segment& segment : sharded.group.chunks().at(0).segments) {
        CHECK(segment.active == (segment.name != "unused"));
        num_unused += segment.name == "unused" ? 1 : 0;
      }
      CHECK(sum_over_ranks(world, num_unused) >= 1);
      sharded.group.zero_grad();
      sharded.group.mark_active_segments();
      for (const nn::Segment& segment : sharded.group.chunks().at(0).segments) {
        CHECK_FALSE(segment.active);
      }
    });
  }
}

}  // namespace fsdptrain::shard
