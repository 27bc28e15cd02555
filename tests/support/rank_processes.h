#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/flight/memory.h"
#include "comm/shm/segment.h"
#include "tests/support/child_process.h"
#include "tests/support/rank_backends.h"
#include "tests/support/served_store.h"

namespace fsdptrain::testing {

// Ranks of one host that are processes of tests/comm/rank_worker.cpp, on shared memory made here,
// or on gloo. What still runs is killed at the end.
class RankProcesses {
 public:
  RankProcesses(Backend backend, const std::string& scenario, int num_ranks,
                std::uint64_t arena_bytes = std::uint64_t{16} << 20) {
    if (backend == Backend::Gloo) {
      store_ = std::make_unique<ServedStore>(num_ranks);
    }
    const Descriptor segment(comm::Segment::create({num_ranks, arena_bytes}));
    for (int rank = 0; rank < num_ranks; ++rank) {
      rings_.push_back(std::make_unique<comm::FlightMemory>(comm::FlightMemory::create(
          {.rank = rank, .world_size = num_ranks}, {.capacity = 256, .inheritable = true})));
      start(scenario, rank, num_ranks, segment.number());
    }
  }

  // Waits for the end of a rank.
  ChildProcess::End wait(int rank) { return processes_[static_cast<std::size_t>(rank)].wait(); }
  void send(int rank, int signal) const { processes_[static_cast<std::size_t>(rank)].send(signal); }
  // The flight ring of a rank, also after its end.
  int ring(int rank) const { return rings_[static_cast<std::size_t>(rank)]->descriptor(); }

 private:
  void start(const std::string& scenario, int rank, int num_ranks, int segment) {
    std::vector<std::string> arguments{
        FSDPTRAIN_RANK_WORKER,   scenario,
        std::to_string(rank),    std::to_string(num_ranks),
        std::to_string(segment), std::to_string(rings_.back()->descriptor())};
    if (store_) {
      arguments.push_back(store_->path());
    }
    processes_.emplace_back(
        ProcessOptions{.program = FSDPTRAIN_RANK_WORKER, .arguments = std::move(arguments)},
        ChildProcess::Errors::Through);
  }

  std::vector<std::unique_ptr<comm::FlightMemory>> rings_;
  std::vector<ChildProcess> processes_;
  // Where ranks on gloo meet; null for others.
  std::unique_ptr<ServedStore> store_;
};

}  // namespace fsdptrain::testing
