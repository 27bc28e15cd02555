#pragma once

#include <utility>

#include "comm/threads/thread_boards.h"
#include "comm/world.h"

namespace fsdptrain::comm {

// The world of the one rank of a job without others, of the thread that makes it: for programs that
// no launcher starts. What works on the ranks of a world works on this one.
class LoneWorld {
 public:
  explicit LoneWorld(World::Options options = {})
      : world_(boards_.connect(0, true), std::move(options)) {}

  World& world() { return world_; }

 private:
  ThreadBoards boards_{1};
  World world_;
};

}  // namespace fsdptrain::comm
