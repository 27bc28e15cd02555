#pragma once

#include <cstdint>

#include "kernels/functors/variant.h"
#include "runtime/base/view.h"

namespace fsdptrain::kernels::inline FSDPTRAIN_VARIANT {

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

// Calls body(i) for i in [0, count) on the threads of the launch. What a task covers must follow
// from the shape alone, never from the number of threads.
template <class Body>
FSDPTRAIN_HOST_DEVICE void parallel_for(const Launch& launch, std::int64_t count,
                                        const Body& body) {
  launch.pool->run(
      count,
      [](void* context, std::int64_t index) { (*static_cast<const Body*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// The same for tasks that need scratch: body(i, slot) with slot in [0, slots), where no two tasks
// run at once with one slot. What a task reads from its slot it has written there before.
template <class Body>
FSDPTRAIN_HOST_DEVICE void parallel_with_slots(const Launch& launch, std::int64_t slots,
                                               std::int64_t count, const Body& body) {
  std::int64_t next = 0;
  parallel_for(launch, slots, [&](std::int64_t slot) {
    for (std::int64_t index = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED); index < count;
         index = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) {
      body(index, slot);
    }
  });
}

// The same in blocks: body(begin, end) over [0, count) in pieces of `block`.
template <class Body>
FSDPTRAIN_HOST_DEVICE void parallel_blocks(const Launch& launch, std::int64_t count,
                                           std::int64_t block, const Body& body) {
  parallel_for(launch, ceil_div(count, block), [&](std::int64_t index) {
    body(index * block, min(count, (index + 1) * block));
  });
}

}  // namespace fsdptrain::kernels::inline FSDPTRAIN_VARIANT
