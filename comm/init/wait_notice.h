#pragma once

#include "comm/clock.h"

namespace fsdptrain::comm {

// When whoever waits says so: first after `patience`, then each time that three times as long has
// passed.
class WaitNotice {
 public:
  // From now on; `clock` outlives it.
  explicit WaitNotice(Nanoseconds patience, const Clock& clock = monotonic_clock());

  // Whether it is time to say it.
  bool is_due();

 private:
  const Clock& clock_;
  Nanoseconds begin_;
  Nanoseconds next_;
};

}  // namespace fsdptrain::comm
