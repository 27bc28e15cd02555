#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/process.h"
#include "tools/bench/comm_rank.h"

namespace fsdptrain::tools {

// How ranks reach each other.
enum class CommBackend : std::uint8_t {
  // Memory made here.
  Shm,
  // gloo over loopback.
  Gloo,
};

// Ranks of one host that are processes of this program. Between tasks they sleep. Those that still
// run when this ends are killed.
class CommRanks {
 public:
  // In shared memory rank r stays on cores[r % cores.size()], and spins if that has no other rank;
  // ranks on gloo, with their threads, run anywhere.
  CommRanks(CommBackend backend, int num_ranks, const std::vector<int>& cores,
            std::int64_t max_nbytes);
  CommRanks(const CommRanks&) = delete;
  CommRanks& operator=(const CommRanks&) = delete;

  int size() const { return num_ranks_; }

  // All ranks do it together. For each repeat, from the first begin to the last end, and whether
  // any rank was preempted. Error if one of them ended.
  std::vector<CommTimes> run(const CommTask& task);

 private:
  struct Rank {
    Process process;
    Descriptor socket;
  };

  void start_in_shared_memory(const std::vector<int>& cores, std::int64_t max_nbytes);
  void start_on_gloo(std::int64_t max_nbytes);
  void start(const CommRankOptions& options);
  // The socket of that rank ended.
  [[noreturn]] void fail_ended(std::size_t rank);

  int num_ranks_;
  std::vector<Rank> ranks_;
};

}  // namespace fsdptrain::tools
