#pragma once

#include "comm/meta/traffic.h"
#include "tools/plan/memory_plan.h"
#include "tools/train/training_rank.h"

// What follows from a rank that has been run on meta.
namespace fsdptrain::tools {

// By purpose; `peak` is the phase that has it, `held` what the allocator counts between steps,
// `staging` bytes of which are what checkpoints are copied to.
std::vector<PlannedItem> items_of(TrainingRank& rank, const MemoryCounters& peak,
                                  const MemoryCounters& held, std::int64_t staging);

std::vector<PlannedTraffic> traffic_of(const comm::TrafficCounters& counters);

std::vector<PlannedSlots> slots_of(const shard::ShardedModel& model);

// See MemoryPlan.
std::int64_t peer_pages_of(const shard::ShardedModel& model);

}  // namespace fsdptrain::tools
