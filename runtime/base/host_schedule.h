#pragma once

#include <functional>

namespace fsdptrain {

// Who decides which of several rank threads of one process runs. Where a rank context has one,
// every place that would block a rank until another one acts waits through it instead: then one
// rank thread runs at a time, a seed fixes the whole interleaving, and a hang is "nobody can run"
// rather than a time that is over. Without one, threads are the system's business.
class HostSchedule {
 public:
  HostSchedule() = default;
  HostSchedule(const HostSchedule&) = delete;
  HostSchedule& operator=(const HostSchedule&) = delete;
  virtual ~HostSchedule() = default;

  // The calling thread is `rank` from now on; returns when it is its turn to run. The turn of the
  // first comes when all ranks that the schedule expects have begun.
  virtual void begin(int rank) = 0;
  // The calling thread stops being `rank`, whether its body returned or threw; others go on.
  virtual void end(int rank) = 0;
  // Lets the other ranks, and operations of devices, run until `ready()` is true. `ready` is called
  // by this thread alone, while no other rank runs, and must not block. Error that names what every
  // rank waits for when nothing can run any more.
  virtual void wait(const std::function<bool()>& ready) = 0;
};

}  // namespace fsdptrain
