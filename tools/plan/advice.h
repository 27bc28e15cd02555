#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/plan/memory_plan.h"

// What makes a run fit that takes more memory than there is.
namespace fsdptrain::tools {

struct Suggestion {
  // As it is written in a configuration or on a command line: "train.micro_batch = 2".
  std::string change;
  // "a step computes 31 % more", "a rank receives 12.0 GiB a step instead of 6.0 GiB".
  std::string cost;
  std::int64_t needed = 0;
  bool fits = false;
};

// What a rank needs of the memory that `limit` bytes of are there for it: on a GPU what is in use
// at the peak, since the allocator gives back what it keeps before it fails; on a CPU, where the
// system ends who asks for too much, all that it keeps, and `process` bytes and pages of peers.
std::int64_t needed_memory(const Config& config, const MemoryPlan& plan, std::int64_t process);

// What was tried, in order of what it costs, up to the first change that fits: recomputation,
// smaller micro-batches, gathering again for the backward, more ranks; one at a time, then all of
// them together. Each is planned. None if the plan fits.
std::vector<Suggestion> suggestions(const Config& config, const MemoryPlan& plan,
                                    std::int64_t limit, std::int64_t process);

}  // namespace fsdptrain::tools
