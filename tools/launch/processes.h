#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

// Processes of this host as /proc shows them, for those who end what was left behind.
namespace fsdptrain::tools {

struct RunningProcess {
  pid_t id = 0;
  pid_t parent = 0;
};

// Those that have not ended, in no order. Some may start or end meanwhile. IoError where the system
// does not tell, as without descriptors.
std::vector<RunningProcess> running_processes();

// Those that `is_root` takes, and all that come of them.
std::vector<pid_t> with_descendants(const std::vector<RunningProcess>& processes,
                                    const std::function<bool(const RunningProcess&)>& is_root);

// Whether the process was started with "NAME=value" in its environment; false where it has ended or
// is another user's. IoError as above.
bool has_variable(pid_t process, const std::string& variable);

}  // namespace fsdptrain::tools
