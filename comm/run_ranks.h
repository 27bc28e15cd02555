#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "comm/link/links.h"
#include "comm/world.h"

namespace fsdptrain {
class HostSchedule;
}

namespace fsdptrain::comm {

struct ThreadRanks {
  int num_ranks = 1;
  // Compute threads of each rank, itself counted.
  int threads_per_rank = 1;
  // On CUDA rank r has the r-th device from this one's on.
  World::Options world = {};
  // How they reach each other; by each other's memory if this is empty.
  Connect connect = {};
  // Delays what other ranks can see by random times of up to 200 us, for tests.
  std::optional<std::uint64_t> delay_seed = {};
  // Runs one of them at a time, if it is not null; for tests, and for ranks that reach each other
  // by each other's memory.
  HostSchedule* schedule = nullptr;
};

// Runs `body` on `num_ranks` ranks that are threads of this process, each with a rank context and
// the world of all, and returns when all have ended. Of several ranks, each has its number in front
// of what it logs. A rank that throws ends the others; what its operations under way read and write
// stays until they have ended, too. One whose `connect` throws ends the others when theirs have
// returned. What each of them threw, null for none. Error, before any rank begins, if the system
// refuses a thread. On CUDA the program has called nccl::prepare_environment() before it had
// threads; ranks warn where it has not.
std::vector<std::exception_ptr> try_ranks(const ThreadRanks& ranks,
                                          const std::function<void(World&)>& body);

// The same; throws the failure that made the others fail.
void run_ranks(const ThreadRanks& ranks, const std::function<void(World&)>& body);

}  // namespace fsdptrain::comm
