#pragma once

#include <thread>

namespace fsdptrain {

// What a loop does between two looks at a word that another thread will change.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace fsdptrain
