#pragma once

#include <cstdint>

#include "kernels/functors/variant.h"
#include "runtime/base/view.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

inline constexpr Isa kIsa = Isa::FSDPTRAIN_VARIANT_ISA;

FSDPTRAIN_HOST_DEVICE std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
FSDPTRAIN_HOST_DEVICE std::int64_t min(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
FSDPTRAIN_HOST_DEVICE std::int64_t max(std::int64_t a, std::int64_t b) {
  return a < b ? b : a;
}

// Calls body(i, thread) for i in [0, count) on the threads of the launch. What a task covers must
// follow from the shape alone, never from the number of threads; `thread` may only choose scratch.
template <class Body>
FSDPTRAIN_HOST_DEVICE void parallel_for_threads(const Launch& launch, std::int64_t count,
                                                const Body& body) {
  launch.pool->run(
      count,
      [](void* context, std::int64_t index, int thread) {
        (*static_cast<const Body*>(context))(index, thread);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// The same where no scratch is needed: body(i).
template <class Body>
FSDPTRAIN_HOST_DEVICE void parallel_for(const Launch& launch, std::int64_t count,
                                        const Body& body) {
  parallel_for_threads(launch, count, [&](std::int64_t index, int) { body(index); });
}

// The same in blocks: body(begin, end) over [0, count) in pieces of `block`.
template <class Body>
FSDPTRAIN_HOST_DEVICE void parallel_blocks(const Launch& launch, std::int64_t count,
                                           std::int64_t block, const Body& body) {
  parallel_for(launch, ceil_div(count, block),
               [&](std::int64_t index) { body(index * block, min(count, (index + 1) * block)); });
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
