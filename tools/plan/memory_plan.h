#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/isa.h"
#include "runtime/base/memory_counters.h"
#include "tools/config/config.h"
#include "tools/plan/padding.h"
#include "tools/plan/phase_watch.h"

// What a rank of a run holds and moves, before there is a run.
namespace fsdptrain::tools {

// Bytes that a rank holds for one purpose.
struct PlannedItem {
  std::string name;
  // Between steps, and when most is in use of all items together.
  std::int64_t held = 0;
  std::int64_t at_peak = 0;
};

// Of a step.
struct PlannedTraffic {
  // "all_gather", and what it serves: "forward", "backward" or nothing.
  std::string collective;
  std::string direction;
  std::int64_t calls = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;

  friend bool operator==(const PlannedTraffic&, const PlannedTraffic&) = default;
};

// Equal slots of the pool that gathered parameters and whole gradients take turns in.
struct PlannedSlots {
  std::int64_t slot_nbytes = 0;
  std::int64_t num_slots = 0;
  // "parameters of h.0-11"
  std::vector<std::string> users;
};

struct MemoryPlan {
  int world = 1;
  int rank = 0;
  int threads = 1;
  Isa isa = Isa::Baseline;
  std::int64_t num_parameters = 0;
  std::int64_t num_micro_batches = 1;

  // What the allocator of the rank counts in all of a run: peaks are the largest of it, live is
  // what is held between steps. Raw figures are those after it.
  MemoryCounters memory;
  // By time of a step: forwards and backwards of units, the update and what comes behind it.
  std::vector<StepPhase> phases;
  // The one with the peak.
  std::string peak_phase;
  std::vector<PlannedItem> items;
  // Pages of other ranks on this host that this one reads gathered parts and gradients from, if all
  // ranks are processes of one host; the system counts them as this process' memory, too.
  std::int64_t peer_pages = 0;
  // Host memory that checkpoints are copied to, so that training goes on while they are written. On
  // a CPU it is among the items; beside a GPU it is not in its memory.
  std::int64_t staging = 0;

  std::vector<PlannedTraffic> traffic;
  std::vector<PlannedSlots> slots;
  std::vector<UnitPadding> padding;
  // What mends it; empty where there is little.
  std::string padding_warning;

  // What is in use when most is.
  std::int64_t peak() const { return memory.peak_total; }
  // What the allocator has asked of the system by then: blocks that are free are kept for later.
  std::int64_t kept() const { return memory.raw_bytes; }
  std::int64_t bytes_received() const;
};

// A run of `config` on `world` ranks as rank `rank` of it counts it, exactly, for what its
// allocator hands out on a CPU with so many threads and the instruction set variant that the
// program would choose here. Without `threads` it is run.threads, or the rank's share of the
// processors of this machine. The run is made on meta: nothing is allocated and no other rank is
// needed. ConfigError for what training refuses.
MemoryPlan plan_memory(const Config& config, int world, int rank, std::optional<int> threads = {});

}  // namespace fsdptrain::tools
