#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/schedules.h"

// The schedules that tests run.
namespace fsdptrain::testing {
namespace schedules {

// One forward and its backward after the other.
inline auto micro_batches(int num) {
  return [num](ScheduledRank& rank) {
    for (int i = 0; i < num; ++i) {
      rank.backward(rank.forward(), i + 1 == num);
    }
  };
}

inline void two_forwards_and_one_backward(ScheduledRank& rank) {
  const Tensor first = rank.forward();
  const Tensor second = rank.forward();
  rank.backward(ops::add(first, second));
}

inline void accumulation_without_sync(ScheduledRank& rank) {
  rank.sharded().set_requires_gradient_sync(false);
  rank.backward(rank.forward());
  rank.backward(rank.forward());
  rank.sharded().set_requires_gradient_sync(true);
  rank.backward(rank.forward());
}

// Of all but the last unit, which is the root.
inline void root_without_sync(ScheduledRank& rank) {
  rank.sharded().units().back()->set_requires_gradient_sync(false);
  rank.backward(rank.forward());
  rank.sharded().units().back()->set_requires_gradient_sync(true);
  rank.backward(rank.forward());
}

inline void evaluation_and_training(ScheduledRank& rank) {
  {
    const autograd::NoGradGuard no_grad;
    static_cast<void>(rank.forward());
  }
  {
    const shard::GatheredScope scope(rank.sharded());
    const autograd::NoGradGuard no_grad;
    static_cast<void>(rank.forward());
    static_cast<void>(rank.forward());
  }
  rank.backward(rank.forward());
}

// As the first of two pipeline stages orders four micro-batches.
inline void one_forward_one_backward(ScheduledRank& rank) {
  Tensor first = rank.forward();
  Tensor second = rank.forward();
  rank.backward(first, false);
  first = rank.forward();
  rank.backward(second, false);
  second = rank.forward();
  rank.backward(first, false);
  rank.backward(second, true);
}

// All that is to come from the first unit on, in another order than it comes.
inline void lists_of_prefetches(ScheduledRank& rank) {
  rank.unit(0).set_modules_to_forward_prefetch({&rank.unit(2), &rank.unit(1)});
  rank.unit(1).set_modules_to_forward_prefetch({});
  rank.unit(2).set_modules_to_backward_prefetch({&rank.unit(0), &rank.unit(1)});
  rank.unit(1).set_modules_to_backward_prefetch({});
}

}  // namespace schedules

inline std::vector<ShardedSchedule> all_schedules() {
  using namespace schedules;
  const shard::ShardedUnit::Options keep{.reshard_after_forward = false};
  const shard::ShardedUnit::Options reshard{.reshard_after_forward = true};
  const shard::ShardedUnit::Options bfloat16{.policy = {.param_dtype = DType::BFloat16},
                                             .reshard_after_forward = true};
  const nn::ParameterRule frozen_block{.pattern = "chain.blocks.1.*", .trainable = false};
  const nn::ParameterRule frozen_biases{.pattern = "chain.blocks.*.bias", .trainable = false};
  return {
      {.name = "plain", .forwards_and_backwards = micro_batches(1)},
      {.name = "no reshard", .unit = keep, .forwards_and_backwards = micro_batches(1)},
      {.name = "prefetch 0", .model = {.prefetch = 0}, .forwards_and_backwards = micro_batches(1)},
      {.name = "prefetch 2", .model = {.prefetch = 2}, .forwards_and_backwards = micro_batches(2)},
      {.name = "recompute",
       .unit = reshard,
       .recompute = nn::Recompute::Full,
       .forwards_and_backwards = micro_batches(1)},
      {.name = "recompute in bfloat16",
       .unit = bfloat16,
       .model = {.prefetch = 2},
       .recompute = nn::Recompute::Full,
       .forwards_and_backwards = micro_batches(2)},
      {.name = "two forwards, one backward",
       .forwards_and_backwards = two_forwards_and_one_backward},
      {.name = "three micro-batches", .forwards_and_backwards = micro_batches(3)},
      {.name = "three micro-batches, added exactly",
       .model = {.accumulation = shard::Accumulation::Exact},
       .forwards_and_backwards = micro_batches(3),
       .keeps_to_plan = false},
      {.name = "accumulation without sync",
       .forwards_and_backwards = accumulation_without_sync,
       .keeps_to_plan = false},
      {.name = "lists and frozen biases, the root without sync",
       .model = {.rules = {frozen_biases}, .prefetch = 0},
       .lists = {{0, 1}, {2}},
       .forwards_and_backwards = root_without_sync,
       .keeps_to_plan = false},
      {.name = "evaluation between steps",
       .forwards_and_backwards = evaluation_and_training,
       .keeps_to_plan = false},
      {.name = "explicit prefetch lists",
       .prepare = lists_of_prefetches,
       .forwards_and_backwards = micro_batches(2)},
      {.name = "frozen block",
       .model = {.rules = {frozen_block}},
       .forwards_and_backwards = micro_batches(2)},
      {.name = "tied head", .is_tied = true, .forwards_and_backwards = micro_batches(2)},
      {.name = "same module twice",
       .route = {0, 1, 0, 2},
       .forwards_and_backwards = micro_batches(2)},
      {.name = "one forward, one backward", .forwards_and_backwards = one_forward_one_backward},
      {.name = "one stream of communication",
       .streams = comm::nccl::Streams::Shared,
       .forwards_and_backwards = micro_batches(2)},
  };
}

inline ShardedSchedule schedule_named(std::string_view name) {
  for (ShardedSchedule& schedule : all_schedules()) {
    if (schedule.name == name) {
      return std::move(schedule);
    }
  }
  fail("there is no schedule '{}'", name);
}

}  // namespace fsdptrain::testing
