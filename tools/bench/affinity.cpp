#include "tools/bench/affinity.h"

#include <cerrno>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <system_error>

#include "runtime/base/error.h"

namespace fsdptrain::tools {

AffinityGuard::AffinityGuard(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    CPU_SET(static_cast<std::size_t>(core), &set);
  }
  const bool is_set = ::sched_getaffinity(0, sizeof before_, &before_) == 0 &&
                      ::sched_setaffinity(0, sizeof set, &set) == 0;
  check<IoError>(is_set, "bench: a thread cannot run on the processors {}: {}",
                 fmt::join(cores, ","), std::generic_category().message(errno));
}

AffinityGuard::~AffinityGuard() {
  ::sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace fsdptrain::tools
