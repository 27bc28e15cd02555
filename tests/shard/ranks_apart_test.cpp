#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/run_ranks.h"
#include "runtime/autograd/meta.h"
#include "tests/support/schedule_table.h"
#include "tests/support/sharded_chain.h"

// Sharded models on ranks that do not keep step: one stops, one does something else, all are late.
namespace fsdptrain::testing {
namespace {

using namespace std::chrono_literals;
using comm::World;

constexpr int kNumBlocks = 5;
constexpr std::size_t kStopped = 3;

std::string text_of_one(const std::exception_ptr& error) {
  return error ? comm::text_of(error) : "";
}

template <class E>
bool is_one(const std::exception_ptr& error) {
  try {
    if (error) {
      std::rethrow_exception(error);
    }
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
  return false;
}

void name_groups(World& world, const shard::ShardedModel& model) {
  std::uint32_t group = 0;
  for (const std::string& name : model.tag_group_names()) {
    world.name_group(0, group++, name);
  }
}

enum class Where { Forward, Backward, BackwardWithoutSync };

// Calls `stop` where the backward comes to the module.
void stop_in_backward(nn::Module& module, const std::function<void()>& stop) {
  module.add_hooks({.pre_forward = {},
                    .post_forward =
                        [stop](nn::Module::Tensors& outputs) {
                          auto& hooks = outputs.front().autograd_meta()->pre_backward_hooks;
                          hooks.insert(hooks.begin(), stop);
                        },
                    .forward_failed = {}});
}

// What the others say of the last rank, which stops where it comes to the block in its second step.
std::vector<std::exception_ptr> errors_where_one_stops(Where where) {
  std::latch failed(2);
  const comm::ThreadRanks ranks{.num_ranks = 3, .world = {.timeout = 1s}};
  return comm::try_ranks(ranks, [&](World& world) {
    ShardedChain sharded(world, kNumBlocks, {}, {.prefetch = 0});
    name_groups(world, sharded.model);
    sharded.model.set_requires_gradient_sync(where != Where::BackwardWithoutSync);
    sharded.step(0);
    if (world.rank() == 2) {
      const auto stop = [&] { failed.wait(); };
      if (where == Where::Forward) {
        sharded.chain.before_block = [stop](std::size_t i) { i == kStopped ? stop() : void(); };
      } else {
        stop_in_backward(*sharded.chain.blocks[kStopped], stop);
      }
    }
    try {
      sharded.step(1);
    } catch (...) {
      if (world.rank() != 2) {
        failed.count_down();
      }
      throw;
    }
  });
}

std::vector<std::vector<double>> values_of(shard::ShardedModel& model) {
  std::vector<std::vector<double>> values;
  for (const nn::FlatChunk& chunk : model.chunks()) {
    values.push_back(chunk.parameters.to_vector());
  }
  return values;
}

// Trains a step that all ranks do alike, then one in which `diverge` made one rank another one.
// One of them says all of `texts`.
void expect_mismatch(int prefetch, const std::function<void(ShardedChain&)>& diverge,
                     const std::vector<const char*>& texts) {
  for (const int divergent : {0, 1, 2}) {
    CAPTURE(divergent);
    const auto errors = comm::try_ranks({.num_ranks = 3}, [&](World& world) {
      ShardedChain sharded(world, 3, {}, {.prefetch = prefetch});
      name_groups(world, sharded.model);
      optim::AdamW optimizer(sharded.model.chunks(), {});
      const auto train = [&](int step) {
        sharded.step(step);
        optimizer.step(sharded.model.chunks(), 0.01, sharded.model.clip_grad_norm(0.5).scale);
        sharded.model.bump_epoch();
      };
      const auto first = values_of(sharded.model);
      train(0);
      const auto before = values_of(sharded.model);
      CHECK(before != first);
      if (world.rank() == divergent) {
        diverge(sharded);
      }
      try {
        train(1);
      } catch (const Error&) {
        bool same = true;
        std::size_t i = 0;
        for (const auto& unit : sharded.model.units()) {
          for (const nn::FlatChunk& chunk : unit->group().chunks()) {
            same = same && chunk.parameters.to_vector() == before[i++];
          }
        }
        CHECK(same);
        throw;
      }
    });
    bool is_named = false;
    for (const std::exception_ptr& error : errors) {
      const std::string text = text_of_one(error);
      CAPTURE(text);
      CHECK((is_one<comm::MismatchError>(error) || is_one<comm::PeerError>(error)));
      bool has_all = is_one<comm::MismatchError>(error);
      for (const char* const part : texts) {
        has_all = has_all && text.find(part) != std::string::npos;
      }
      is_named = is_named || has_all;
    }
    INFO(text_of_one(errors[0]), "\n", text_of_one(errors[1]), "\n", text_of_one(errors[2]));
    CHECK(is_named);
  }
}

}  // namespace

TEST_SUITE("shard/ranks apart") {
  TEST_CASE("a rank that stops in the forward or backward of a block is reported by the block") {
    for (const Where where : {Where::Forward, Where::BackwardWithoutSync, Where::Backward}) {
      CAPTURE(static_cast<int>(where));
      // It has begun the reduction of the block before, and has no hand free to carry it out.
      const bool reduces = where == Where::Backward;
      const char* const what = reduces ? "rank 2 issued reduce_scatter" : "rank 2 ended all_gather";
      const char* const block = reduces ? "for blocks.4 did not end in 1 s, missing: rank 2"
                                        : "for blocks.3 did not end in 1 s, missing: rank 2";
      const auto errors = errors_where_one_stops(where);
      bool is_found = false;
      for (const int rank : {0, 1}) {
        const std::exception_ptr& error = errors[static_cast<std::size_t>(rank)];
        const std::string text = text_of_one(error);
        CAPTURE(text);
        CHECK(text.find(block) != std::string::npos);
        is_found =
            is_found || (is_one<comm::TimeoutError>(error) && text.find(what) != std::string::npos);
      }
      CHECK(is_found);
    }
  }

  TEST_CASE("groups swapped on one rank in the forward are told before weights change") {
    const auto swap = [](ShardedChain& sharded) { sharded.chain.route = {0, 2, 1}; };
    expect_mismatch(0, swap, {"forward, for blocks.1", "forward, for blocks.2"});
    // The next one was gathered ahead on all ranks, and the order differs from the backward on.
    expect_mismatch(1, swap, {"backward, for blocks.1"});
  }

  TEST_CASE("so are groups swapped in the backward") {
    const auto swap = [](ShardedChain& sharded) {
      sharded.unit(2).set_modules_to_backward_prefetch({&sharded.unit(0), &sharded.unit(1)});
    };
    expect_mismatch(1, swap, {"backward, for blocks.0", "backward, for blocks.1"});
  }

  TEST_CASE("delays in all collectives change no bit of three steps, by any schedule") {
    for (const ShardedSchedule& schedule : all_schedules()) {
      CAPTURE(schedule.name);
      const auto train = [&](std::optional<std::uint64_t> delay_seed) {
        std::vector<std::vector<std::vector<double>>> chunks(3);
        comm::run_ranks({.num_ranks = 3, .delay_seed = delay_seed}, [&](World& world) {
          chunks[static_cast<std::size_t>(world.rank())] = train_by(schedule, world);
        });
        return chunks;
      };
      const auto expected = train({});
      for (const std::uint64_t seed : {1, 2, 3}) {
        CAPTURE(seed);
        CHECK(train(seed) == expected);
      }
    }
  }
}

}  // namespace fsdptrain::testing
