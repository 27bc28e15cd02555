#pragma once

#include <string>
#include <vector>

#include "shard/sharded_model.h"
#include "tests/support/block_chain.h"

namespace fsdptrain::testing {

// A chain as a sharded model of one rank: a unit for each block, or for each list of blocks, then
// the root. Sharded over `shards`, or over all ranks if there are none.
struct ShardedChain {
  ShardedChain(comm::World& of, int num_blocks, shard::ShardedUnit::Options options = {},
               shard::ShardedModel::Options model_options = {},
               const std::vector<std::vector<std::size_t>>& lists = {},
               comm::ProcessGroup* shards = nullptr)
      : world(of),
        chain(num_blocks),
        model(chain, shards == nullptr ? of.group() : *shards, with_seed(model_options)) {
    options.gradient_divide_factor = 1;
    for (std::size_t i = 0; lists.empty() && i < chain.blocks.size(); ++i) {
      model.fully_shard(*chain.blocks[i], options);
    }
    for (const auto& list : lists) {
      std::vector<nn::Module*> modules;
      for (const std::size_t i : list) {
        modules.push_back(chain.blocks[i].get());
      }
      model.fully_shard(modules, options);
    }
    model.fully_shard(chain, options);
    calls();
  }

  static shard::ShardedModel::Options with_seed(shard::ShardedModel::Options options) {
    options.seed = 5;
    return options;
  }

  shard::ShardedUnit& unit(std::size_t i) { return *model.units()[i]; }
  Tensor loss(int step) { return ChainLoss{}(chain, world.rank(), step, DType::Float32); }

  void step(int number) {
    model.zero_grad();
    autograd::backward(loss(number));
  }

  // Relative to the largest.
  void expect_gradients(const Values& expected, double tolerance) {
    double largest = 0;
    for (const auto& [name, values] : expected) {
      for (const double value : values) {
        largest = std::max(largest, std::abs(value));
      }
    }
    for (const auto& unit : model.units()) {
      shard::ParamGroup& group = unit->group();
      group.mark_active_segments();
      bool has_gradients = false;
      for (const nn::FlatChunk& chunk : group.chunks()) {
        for (const nn::Segment& segment : chunk.segments) {
          CHECK(segment.active == expected.contains(segment.name));
          has_gradients = has_gradients || segment.active;
        }
      }
      // Of a unit that no gradient came for, whatever was there before is there.
      if (has_gradients) {
        const Difference found = difference_of(group, world.rank(), Of::Gradients, expected);
        CHECK_MESSAGE(found.largest <= tolerance * largest, unit->name());
      }
    }
  }

  std::string calls() { return gathers_and_reductions(world, calls_seen); }

  comm::World& world;
  Chain chain;
  shard::ShardedModel model;
  std::uint64_t calls_seen = 0;
};

}  // namespace fsdptrain::testing
