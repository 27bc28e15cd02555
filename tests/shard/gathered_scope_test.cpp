#include "shard/gathered_scope.h"

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/rank_context.h"
#include "tests/support/sharded_chain.h"

namespace fsdptrain::shard {
namespace {

using comm::World;
using doctest::Contains;
using testing::on_ranks;
using testing::on_two_and_three;
using testing::ShardedChain;

constexpr int kNumBlocks = 3;
constexpr const char* kEach = "G3 G0 G1 G2 ";

// What the chain computes in step `number`, without gradients.
std::vector<double> output(ShardedChain& sharded, int number) {
  const autograd::NoGradGuard no_grad;
  return sharded.loss(number).to_vector();
}

int num_gathered(ShardedChain& sharded) {
  int count = 0;
  for (const auto& unit : sharded.model.units()) {
    count += unit->group().unsharded() ? 1 : 0;
  }
  return count;
}

// The gradients of this rank's chunks.
std::vector<std::vector<double>> gradients(ShardedChain& sharded) {
  std::vector<std::vector<double>> all;
  for (const nn::FlatChunk& chunk : sharded.model.chunks()) {
    all.push_back(chunk.gradients.to_vector());
  }
  return all;
}

}  // namespace

TEST_SUITE("shard/gathered_scope") {
  TEST_CASE("forwards within it gather once, and its end gives everything back") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      const std::vector<double> expected = output(sharded, 0);
      CHECK(sharded.calls() == kEach);
      {
        const GatheredScope scope(sharded.model);
        for (int i = 0; i < 3; ++i) {
          CHECK(output(sharded, 0) == expected);
          CHECK(sharded.calls() == (i == 0 ? kEach : ""));
          CHECK(num_gathered(sharded) == kNumBlocks + 1);
          // Slots are for training.
          CHECK(sharded.model.pool().idle());
        }
      }
      CHECK(num_gathered(sharded) == 0);
      CHECK_THROWS_AS(sharded.chain.blocks[1]->weight().view(), StorageError);
      CHECK(output(sharded, 0) == expected);
      CHECK(sharded.calls() == kEach);
    });
  }

  TEST_CASE("a forward after an update has the new values") {
    on_ranks([](World& world) {
      ShardedChain sharded(world, kNumBlocks, {.policy = {.param_dtype = DType::BFloat16}});
      const GatheredScope scope(sharded.model);
      const std::vector<double> before = output(sharded, 0);
      sharded.calls();
      for (nn::FlatChunk& chunk : sharded.model.chunks()) {
        for (const nn::Segment& segment : chunk.segments) {
          chunk.parameters.set_item(segment.begin, 3);
        }
      }
      // Nobody was told: what was gathered, or cast on one rank, is used as it is.
      CHECK(output(sharded, 0) == before);
      CHECK(sharded.calls().empty());
      sharded.model.bump_epoch();
      CHECK(output(sharded, 0) != before);
      CHECK(sharded.calls() == (world.size() == 1 ? "" : kEach));
    });
  }

  TEST_CASE("training is refused within it, and goes on behind it as if it had not been") {
    on_ranks([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      ShardedChain clean(world, kNumBlocks, {}, {.root = 1});
      // Before the first step, between its forward and its backward, and after it.
      for (int step = 0; step < 3; ++step) {
        CAPTURE(step);
        sharded.model.zero_grad();
        const Tensor loss = sharded.loss(step);
        {
          const GatheredScope scope(sharded.model);
          output(sharded, 7);
          CHECK_THROWS_WITH_AS(sharded.loss(step),
                               Contains("a forward with gradients begins while a GatheredScope"),
                               AutogradError);
          CHECK(num_gathered(sharded) == kNumBlocks + 1);
          CHECK(output(sharded, 7).size() == 1);
        }
        CHECK(num_gathered(sharded) == 0);
        autograd::backward(loss);
        clean.step(step);
        CHECK(gradients(sharded) == gradients(clean));
      }
      const Tensor loss = sharded.loss(3);
      {
        const GatheredScope scope(sharded.model);
        CHECK_THROWS_WITH_AS(autograd::backward(loss),
                             Contains("a backward begins while a GatheredScope lives"),
                             AutogradError);
      }
      sharded.step(3);
      clean.step(3);
      CHECK(gradients(sharded) == gradients(clean));
    });
  }

  TEST_CASE("steps around it find the slots that were planned, and nothing is allocated") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
      std::int64_t allocations = 0;
      const auto generate = [&] {
        const GatheredScope scope(sharded.model);
        CHECK(sharded.model.pool().idle());
        output(sharded, 7);
        output(sharded, 7);
      };
      for (int step = 0; step < 5; ++step) {
        sharded.model.zero_grad();
        const Tensor loss = sharded.loss(step);
        // What was kept for the backward is gathered again, and no plan is made of such a step.
        if (step == 0) {
          generate();
        }
        autograd::backward(loss);
        generate();
        CHECK((step < 2 || counters.raw_allocations == allocations));
        allocations = counters.raw_allocations;
      }
      CHECK(sharded.model.pool().num_unplanned() == 0);
    });
  }

  TEST_CASE("scopes nest, and the outermost gives back") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      const GatheredScope outer(sharded.model);
      {
        const GatheredScope inner(sharded.model);
        output(sharded, 0);
      }
      CHECK(num_gathered(sharded) == kNumBlocks + 1);
      sharded.calls();
      output(sharded, 1);
      CHECK(sharded.calls().empty());
    });
  }

  TEST_CASE("a forward that fails within it leaves nothing gathered, and the next one works") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      const std::vector<double> expected = output(sharded, 0);
      {
        const GatheredScope scope(sharded.model);
        for (const std::size_t failing : {0U, 2U}) {
          sharded.chain.before_block = [&](std::size_t block) {
            check(block != failing, "planted");
          };
          CHECK_THROWS_WITH_AS(output(sharded, 0), Contains("planted"), Error);
          CHECK(num_gathered(sharded) == 0);
          sharded.chain.before_block = [](std::size_t /*block*/) {};
          CHECK(output(sharded, 0) == expected);
        }
      }
      CHECK(num_gathered(sharded) == 0);
    });
  }

  TEST_CASE("it begins neither within a forward nor after a backward that failed") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      std::optional<GatheredScope> scope;
      sharded.chain.before_block = [&](std::size_t /*block*/) { scope.emplace(sharded.model); };
      CHECK_THROWS_WITH_AS(output(sharded, 0), Contains("it begins within a forward of the model"),
                           AutogradError);
      sharded.chain.before_block = [](std::size_t /*block*/) {};
      const Tensor loss = sharded.loss(0);
      // Found by the block before the last, whose backward has not run.
      sharded.unit(1).group().bump_epoch();
      CHECK_THROWS_WITH_AS(autograd::backward(loss), Contains("blocks.1"), AutogradError);
      CHECK_THROWS_WITH_AS(scope.emplace(sharded.model), Contains("it begins within a backward"),
                           AutogradError);
      sharded.model.reset_iter_state();
      sharded.step(1);
    });
  }

  TEST_CASE("where another rank has failed its end is silent, and the next operation is not") {
    std::atomic<int> num_gathering = 0;
    std::atomic<int> num_told = 0;
    comm::try_ranks({.num_ranks = 3}, [&](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      {
        const GatheredScope scope(sharded.model);
        output(sharded, 0);
        if (world.rank() == 1) {
          for (int seen = 0; seen < 2; seen = num_gathering.load()) {
            num_gathering.wait(seen);
          }
          fail("this rank fails");
        }
        sharded.model.bump_epoch();
        sharded.unit(0).unshard(true);
        ++num_gathering;
        num_gathering.notify_all();
      }
      try {
        output(sharded, 1);
      } catch (const comm::PeerError&) {
        ++num_told;
      }
    });
    CHECK(num_told.load() == 2);
  }
}

}  // namespace fsdptrain::shard
