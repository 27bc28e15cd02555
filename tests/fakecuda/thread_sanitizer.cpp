#include "tests/fakecuda/thread_sanitizer.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_read_range(void* data, unsigned long nbytes);   // NOLINT(google-runtime-int): theirs
void __tsan_write_range(void* data, unsigned long nbytes);  // NOLINT(google-runtime-int): theirs
}
#endif

namespace fsdptrain::fakecuda {

#if defined(__SANITIZE_THREAD__)
namespace {

void begin_quiet() {
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void end_quiet() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}

void* without_const(const void* data) {
  return const_cast<void*>(data);  // NOLINT(cppcoreguidelines-pro-type-const-cast): only looked at
}

}  // namespace

void release(const void* token) {
  __tsan_release(without_const(token));
}
void acquire(const void* token) {
  __tsan_acquire(without_const(token));
}
void touch(const Range& range, bool is_write) {
  if (is_write) {
    __tsan_write_range(without_const(range.data), range.nbytes);
  } else {
    __tsan_read_range(without_const(range.data), range.nbytes);
  }
}
#else
namespace {

void begin_quiet() {}
void end_quiet() {}

}  // namespace

void release(const void*) {}
void acquire(const void*) {}
void touch(const Range&, bool) {}
#endif

Quiet::Quiet(bool is_quiet) : is_quiet_(is_quiet) {
  if (is_quiet_) {
    begin_quiet();
  }
}

Quiet::~Quiet() {
  if (is_quiet_) {
    end_quiet();
  }
}

Loud::Loud(bool is_loud) : is_loud_(is_loud) {
  if (is_loud_) {
    end_quiet();
  }
}

Loud::~Loud() {
  if (is_loud_) {
    begin_quiet();
  }
}

}  // namespace fsdptrain::fakecuda
