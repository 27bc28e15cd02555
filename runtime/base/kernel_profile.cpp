#include "runtime/base/kernel_profile.h"

namespace fsdptrain {

void KernelProfile::reset() {
  entries_.clear();
  num_scopes_ = 0;
}

void KernelProfile::enter() {
  ++num_scopes_;
  if (depth_++ == 0) {
    start_ = Clock::now();
  }
}

void KernelProfile::leave(const char* name) {
  if (--depth_ == 0) {
    Entry& entry = entries_[name];
    entry.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
    ++entry.scopes;
  }
}

}  // namespace fsdptrain
