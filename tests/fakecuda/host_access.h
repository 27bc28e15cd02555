#pragma once

#include <csignal>

namespace fsdptrain::fakecuda {

// While one lives, a raw host access to memory that only operations may touch ends the process with
// a line on stderr and kHostAccessExit; other faults go to whom they went before.
class HostAccessHandler {
 public:
  HostAccessHandler();
  HostAccessHandler(const HostAccessHandler&) = delete;
  HostAccessHandler& operator=(const HostAccessHandler&) = delete;
  ~HostAccessHandler();
};

}  // namespace fsdptrain::fakecuda
