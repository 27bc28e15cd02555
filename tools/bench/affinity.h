#pragma once

#include <sched.h>
#include <vector>

namespace fsdptrain::tools {

// While it lives, this thread, and threads that it makes, may run on these processors; then this
// thread again where it could before. IoError where the system refuses.
class AffinityGuard {
 public:
  explicit AffinityGuard(const std::vector<int>& cores);
  AffinityGuard(const AffinityGuard&) = delete;
  AffinityGuard& operator=(const AffinityGuard&) = delete;
  ~AffinityGuard();

 private:
  cpu_set_t before_{};
};

}  // namespace fsdptrain::tools
