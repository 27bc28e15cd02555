#pragma once

#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "runtime/base/descriptor.h"

// A small process beside the launcher, `fsdptrain keeper`, that outlives it: where the launcher is
// killed, it ends what the ranks have started. The ranks themselves end with the launcher
// (exec_stage.h), but the system tells nobody else. It finds the members of the ranks' process
// groups, those that the launcher's death handed to whoever takes orphans and that carry the job's
// variable, and all that come of these.
namespace fsdptrain::tools {

inline constexpr std::string_view kKeeper = "keeper";

class Keeper {
 public:
  // Starts it. What comes of the ranks has `variable`, "NAME=value", in its environment. IoError.
  explicit Keeper(std::string variable);
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  // Nothing has to be ended any more. Ends it, whatever state it is in.
  ~Keeper();

  // 0: there is none.
  pid_t id() const { return id_; }
  // Another in place of one that has ended and was waited for. IoError.
  void start_again();

  // A process group, while it has members: later its number may be that of others.
  void add(pid_t group);
  void remove(pid_t group);

 private:
  void start();
  void send(pid_t order);

  std::string variable_;
  std::set<pid_t> groups_;
  Descriptor orders_;
  pid_t id_ = 0;
};

// The process; returns its exit code.
int run_keeper(const std::vector<std::string>& arguments);

}  // namespace fsdptrain::tools
