#include "tools/launch/cores.h"

#include <sched.h>

namespace fsdptrain::tools {

std::vector<int> usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
      if (CPU_ISSET(static_cast<std::size_t>(processor), &set)) {
        processors.push_back(processor);
      }
    }
  }
  return processors;
}

std::vector<int> processors_of_rank(const std::vector<int>& all, int rank, int num_ranks) {
  const auto each = static_cast<std::ptrdiff_t>(all.size()) / num_ranks;
  const auto begin = all.begin() + rank * each;
  return {begin, begin + each};
}

}  // namespace fsdptrain::tools
