#include "runtime/base/processors.h"

#include <sched.h>

namespace fsdptrain {

int num_processors() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  return sched_getaffinity(0, sizeof processors, &processors) == 0 ? CPU_COUNT(&processors) : 1;
}

}  // namespace fsdptrain
