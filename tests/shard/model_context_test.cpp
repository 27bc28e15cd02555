#include "shard/model_context.h"

#include <fmt/format.h>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "tests/support/block_chain.h"

namespace fsdptrain::shard {
namespace {

using comm::World;
using testing::Chain;
using testing::ChainLoss;
using testing::gathers_and_reductions;
using testing::on_two_and_three;

// A chain with a group for each block and one for the rest, whose number is the last.
struct GroupedChain {
  GroupedChain(World& of, int num_blocks, const ModelContext::Options& options)
      : world(of), chain(num_blocks), pool(of.group()), context(pool, options) {
    for (int i = 0; i < num_blocks; ++i) {
      add(*chain.blocks[static_cast<std::size_t>(i)], fmt::format("blocks.{}.", i));
    }
    // Around those of the group of the rest.
    chain.add_hooks({.pre_forward = [this](auto& /*inputs*/) { context.begin_forward(); },
                     .post_forward = [this](auto& /*outputs*/) { context.end_forward(); },
                     .owner = this});
    add(chain, "");
  }

  void add(nn::Module& module, const std::string& path) {
    const auto group = static_cast<std::uint32_t>(groups.size());
    groups.push_back(std::make_unique<ParamGroup>(
        testing::members_of(module, path), world.group(), pool, context,
        ParamGroup::Options{.seed = 5, .tag = {.group = group}}));
  }

  Tensor loss(int step) { return ChainLoss{}(chain, world.rank(), step, DType::Float32); }

  void step(int number) {
    for (const auto& group : groups) {
      group->zero_grad();
    }
    autograd::backward(loss(number));
  }

  World& world;
  Chain chain;
  SlotPool pool;
  ModelContext context;
  std::vector<std::unique_ptr<ParamGroup>> groups;
  std::uint64_t calls_seen = 0;
  std::string calls() { return gathers_and_reductions(world, calls_seen); }
};

constexpr int kNumBlocks = 4;

}  // namespace

TEST_SUITE("shard/model_context") {
  TEST_CASE("groups are gathered in the order of the forward before, as far ahead as asked") {
    on_two_and_three([](World& world) {
      const std::string backward_of[] = {"g4 R4 g3 R3 g2 R2 g1 R1 g0 R0 ",
                                         "g4 g3 R4 g2 R3 g1 R2 g0 R1 R0 ",
                                         "g4 g3 g2 R4 g1 R3 g0 R2 R1 R0 "};
      for (int depth = 0; depth <= 2; ++depth) {
        CAPTURE(depth);
        GroupedChain grouped(world, kNumBlocks, {.prefetch = depth});
        grouped.calls();
        for (int step = 0; step < 3; ++step) {
          CAPTURE(step);
          grouped.step(step);
          CHECK(grouped.calls() ==
                "G4 G0 G1 G2 G3 " + backward_of[static_cast<std::size_t>(depth)]);
        }
      }
    });
  }

  TEST_CASE("when a block computes, the next ones are under way and those beyond are not") {
    on_two_and_three([](World& world) {
      for (int depth = 0; depth <= 2; ++depth) {
        CAPTURE(depth);
        GroupedChain grouped(world, kNumBlocks, {.prefetch = depth});
        grouped.step(0);
        grouped.calls();
        std::vector<std::string> before;
        grouped.chain.before_block = [&](std::size_t /*block*/) {
          before.push_back(grouped.calls());
        };
        grouped.loss(1);
        const std::vector<std::string> expected[] = {{"G4 ", "G0 ", "G1 ", "G2 "},
                                                     {"G4 G0 ", "G1 ", "G2 ", "G3 "},
                                                     {"G4 G0 G1 ", "G2 ", "G3 ", ""}};
        CHECK(before == expected[depth]);
      }
    });
  }

  TEST_CASE("a backward holds two buffers of gradients, however many groups there are") {
    on_two_and_three([](World& world) {
      constexpr int kMany = 8;
      GroupedChain grouped(world, kMany, {.prefetch = 1});
      for (int step = 0; step < 2; ++step) {
        grouped.step(step);
      }
      REQUIRE(grouped.pool.plan());
      std::set<std::size_t> of_gradients;
      std::set<std::size_t> of_parameters;
      for (const auto& [use, slots] : grouped.pool.plan()->slots) {
        for (const Slot& slot : slots) {
          if (use.group < kMany) {
            (use.kind == SlotKind::Gradients ? of_gradients : of_parameters).insert(slot.offset);
          }
        }
      }
      // One size class for all of them; they take turns on slots of both kinds.
      std::set<std::size_t> all = of_gradients;
      all.insert(of_parameters.begin(), of_parameters.end());
      CHECK(all.size() == 4);
    });
  }

  TEST_CASE("from the second step on nothing is allocated, and addresses are those of the plan") {
    on_two_and_three([](World& world) {
      for (int depth = 0; depth <= 2; ++depth) {
        CAPTURE(depth);
        GroupedChain grouped(world, kNumBlocks, {.prefetch = depth});
        const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
        std::vector<const void*> addresses[5];
        std::int64_t allocations = 0;
        for (int step = 0; step < 5; ++step) {
          grouped.chain.before_block = [&](std::size_t block) {
            if (block > 0) {
              return;
            }
            addresses[step].push_back(grouped.chain.scale.view().data);
          };
          grouped.step(step);
          CHECK((step == 0 || counters.raw_allocations == allocations));
          allocations = counters.raw_allocations;
        }
        for (const int step : {2, 3, 4}) {
          CHECK(addresses[step] == addresses[1]);
        }
        CHECK(grouped.pool.num_unplanned() == 0);
      }
    });
  }

  TEST_CASE("a forward of another order gathers what it needs, and the next one goes by it") {
    on_two_and_three([](World& world) {
      GroupedChain grouped(world, kNumBlocks, {.prefetch = 1});
      grouped.step(0);
      grouped.step(1);
      grouped.calls();
      grouped.chain.route = {0, 2, 1, 3};
      grouped.step(2);
      // Block 1 was gathered ahead of block 0's end, and is when its turn comes.
      CHECK(grouped.calls() == "G4 G0 G1 G2 G3 g4 g3 R4 g1 R3 g2 R1 g0 R2 R0 ");
      grouped.step(3);
      CHECK(grouped.calls() == "G4 G0 G2 G1 G3 g4 g3 R4 g1 R3 g2 R1 g0 R2 R0 ");
      grouped.chain.route = {0, 1};
      grouped.step(4);
      for (const auto& group : grouped.groups) {
        CHECK_FALSE(group->unsharded());
      }
      CHECK(grouped.pool.idle());
    });
  }
}

}  // namespace fsdptrain::shard
