#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/board/board.h"
#include "comm/link/links.h"

namespace fsdptrain {
class HostSchedule;
}

namespace fsdptrain::comm {

// What ranks that are threads of one process meet on: the boards of their two links. It outlives
// the links.
class ThreadBoards {
 public:
  explicit ThreadBoards(int num_ranks);

  // By the thread that is this rank, once. `spins` where every compute thread has a core of its
  // own. Waits go by `schedule` if it is not null.
  Links connect(int rank, bool spins, HostSchedule* schedule = nullptr) const;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::span<std::byte> half(std::size_t index);

  std::vector<Line> memory_;
  Board training_;
  Board control_;
};

}  // namespace fsdptrain::comm
