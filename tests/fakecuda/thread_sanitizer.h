#pragma once

#include "tests/fakecuda/range.h"

// What the thread sanitizer is told; nothing where a program is built without it.
namespace fsdptrain::fakecuda {

// While one lives, the sanitizer sees neither the accesses nor the locks of this thread. The fake's
// own lock would otherwise order what no wait orders.
class Quiet {
 public:
  explicit Quiet(bool is_quiet);
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet();

 private:
  const bool is_quiet_;
};

// The reverse, inside of a Quiet, for code that is not the fake's.
class Loud {
 public:
  explicit Loud(bool is_loud);
  Loud(const Loud&) = delete;
  Loud& operator=(const Loud&) = delete;
  ~Loud();

 private:
  const bool is_loud_;
};

// Whoever acquires a token is ordered after all that released it. Only outside of a Quiet.
void release(const void* token);
void acquire(const void* token);
void touch(const Range& range, bool is_write);

}  // namespace fsdptrain::fakecuda
