#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "runtime/base/descriptor.h"

// A small process beside the launcher, `fsdptrain keeper`, that outlives it: where the launcher is
// killed, it ends what the ranks have started. The ranks themselves end with the launcher
// (exec_stage.h), but the system tells nobody else.
namespace fsdptrain::tools {

inline constexpr std::string_view kKeeper = "keeper";

class Keeper {
 public:
  // Starts it. IoError.
  Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  // Nothing has to be ended any more. Waits for it.
  ~Keeper();

  // A process group, while it has members: later its number may be that of others.
  void add(pid_t group);
  void remove(pid_t group);

 private:
  void send(pid_t order);

  Descriptor orders_;
  pid_t id_ = 0;
};

// The process; returns its exit code.
int run_keeper(const std::vector<std::string>& arguments);

}  // namespace fsdptrain::tools
