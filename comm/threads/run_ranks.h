#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "comm/links.h"
#include "comm/world.h"

namespace fsdptrain::comm {

struct ThreadRanks {
  int num_ranks = 1;
  World::Options world = {};
  // How they reach each other; by each other's memory if this is empty.
  Connect connect = {};
  // Delays what other ranks can see by random times of up to 200 us, for tests.
  std::optional<std::uint64_t> delay_seed = {};
};

// Runs `body` on `num_ranks` ranks that are threads of this process, each with a rank context of
// one compute thread and the world of all, and returns when all have ended. A rank that throws ends
// the others. What each of them threw, null for none.
std::vector<std::exception_ptr> try_ranks(const ThreadRanks& ranks,
                                          const std::function<void(World&)>& body);

// The same; throws the failure that made the others fail.
void run_ranks(const ThreadRanks& ranks, const std::function<void(World&)>& body);

}  // namespace fsdptrain::comm
