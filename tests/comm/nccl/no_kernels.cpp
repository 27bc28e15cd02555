#include "kernels/cuda/simt.h"
#include "kernels/cuda/stand_in.h"
#include "runtime/base/cuda/memory_marks.h"
#include "runtime/base/error.h"

// These tests launch no kernel of the project.
namespace fsdptrain::kernels::cuda {

void run_grid(const Grid& grid, const BoundKernel& /*kernel*/) {
  fail("{}: these tests have no kernels", grid.name);
}

void stand_in(const Launch& /*launch*/, const char* op, const Operands& /*operands*/,
              std::function<void(const Launch&)>&& /*kernel*/) {
  fail("{}: these tests have no kernels", op);
}

}  // namespace fsdptrain::kernels::cuda

namespace fsdptrain::cuda {

void mark_block(void* /*data*/, std::size_t /*nbytes*/, std::size_t /*block_bytes*/,
                void* /*stream*/) noexcept {}

}  // namespace fsdptrain::cuda

// The kernels are compiled with calls of these, and never run here.
extern "C" {
[[gnu::weak]] void __tsan_init() {}
[[gnu::weak]] void __tsan_func_entry(void*) {}
[[gnu::weak]] void __tsan_func_exit() {}
[[gnu::weak]] void __tsan_read1(void*) {}
[[gnu::weak]] void __tsan_read2(void*) {}
[[gnu::weak]] void __tsan_read4(void*) {}
[[gnu::weak]] void __tsan_read8(void*) {}
[[gnu::weak]] void __tsan_read16(void*) {}
[[gnu::weak]] void __tsan_read_range(void*, unsigned long) {}
[[gnu::weak]] void __tsan_write1(void*) {}
[[gnu::weak]] void __tsan_write2(void*) {}
[[gnu::weak]] void __tsan_write4(void*) {}
[[gnu::weak]] void __tsan_write8(void*) {}
[[gnu::weak]] void __tsan_write16(void*) {}
[[gnu::weak]] void __tsan_write_range(void*, unsigned long) {}
[[gnu::weak]] int __tsan_atomic32_fetch_add(volatile int* place, int value, int) {
  return __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST);
}
[[gnu::weak]] void __tsan_vptr_update(void*, void*) {}
}
