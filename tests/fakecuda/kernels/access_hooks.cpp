// What kernels that are compiled with -fsanitize=thread call before every access to memory, in a
// program that is not linked with ThreadSanitizer: they are its functions by name.
#include <cstddef>
#include <cstdint>

#include "tests/fakecuda/kernels/thread_watch.h"

namespace fsdptrain::fakecuda {
namespace {

void touch(const void* data, std::size_t nbytes, bool is_write, std::size_t alignment = 1) {
  if (ThreadWatch* const watch = ThreadWatch::current()) {
    watch->access(data, nbytes, is_write, alignment);
  }
}

// CUDA faults where an address is no multiple of the size of the access.
void touch_aligned(const void* data, std::size_t nbytes, bool is_write) {
  touch(data, nbytes, is_write, nbytes);
}

}  // namespace
}  // namespace fsdptrain::fakecuda

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the compiler's names
using fsdptrain::fakecuda::touch;
using fsdptrain::fakecuda::touch_aligned;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void** /*object*/) {}
void __tsan_vptr_update(void** /*object*/, void* /*value*/) {}

void __tsan_read1(void* data) {
  touch(data, 1, false);
}
void __tsan_read2(void* data) {
  touch_aligned(data, 2, false);
}
void __tsan_read4(void* data) {
  touch_aligned(data, 4, false);
}
void __tsan_read8(void* data) {
  touch_aligned(data, 8, false);
}
void __tsan_read16(void* data) {
  touch_aligned(data, 16, false);
}
void __tsan_write1(void* data) {
  touch(data, 1, true);
}
void __tsan_write2(void* data) {
  touch_aligned(data, 2, true);
}
void __tsan_write4(void* data) {
  touch_aligned(data, 4, true);
}
void __tsan_write8(void* data) {
  touch_aligned(data, 8, true);
}
void __tsan_write16(void* data) {
  touch_aligned(data, 16, true);
}

void __tsan_unaligned_read2(void* data) {
  touch(data, 2, false);
}
void __tsan_unaligned_read4(void* data) {
  touch(data, 4, false);
}
void __tsan_unaligned_read8(void* data) {
  touch(data, 8, false);
}
void __tsan_unaligned_read16(void* data) {
  touch(data, 16, false);
}
void __tsan_unaligned_write2(void* data) {
  touch(data, 2, true);
}
void __tsan_unaligned_write4(void* data) {
  touch(data, 4, true);
}
void __tsan_unaligned_write8(void* data) {
  touch(data, 8, true);
}
void __tsan_unaligned_write16(void* data) {
  touch(data, 16, true);
}

void __tsan_read_range(void* data, std::size_t nbytes) {
  touch(data, nbytes, false);
}
void __tsan_write_range(void* data, std::size_t nbytes) {
  touch(data, nbytes, true);
}

// Of the host's code beside kernels: flags and the guards of static variables.
char __tsan_atomic8_load(const volatile char* from, int /*order*/) {
  return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}
void __tsan_atomic8_store(volatile char* to, char value, int /*order*/) {
  __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
