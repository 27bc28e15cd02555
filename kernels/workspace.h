#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/base/view.h"

// How much scratch a launch takes. Dispatch allocates it on the calling thread, before it looks
// at the device, so that meta counts the bytes of a real run with as many threads.
namespace fsdptrain::kernels {

// Pieces of scratch for `count` tasks of which each thread runs one at a time; at least 1.
inline std::int64_t workspace_slots(const Launch& launch, std::int64_t count) {
  return std::clamp<std::int64_t>(count, 1, launch.pool->threads());
}

}  // namespace fsdptrain::kernels
