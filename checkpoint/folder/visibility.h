#pragma once

#include <functional>

#include "comm/clock.h"

// Network file systems show a host what another has done up to a minute late.
namespace fsdptrain::checkpoint {

// Whether it becomes true within that time; looks at least once. `goes_on` is called between two
// looks, and may throw. Time is that of `clock`.
bool becomes_true(const std::function<bool()>& condition, comm::Nanoseconds within,
                  const std::function<void()>& goes_on,
                  const comm::Clock& clock = comm::monotonic_clock());

}  // namespace fsdptrain::checkpoint
