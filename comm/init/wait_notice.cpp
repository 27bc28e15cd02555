#include "comm/init/wait_notice.h"

namespace fsdptrain::comm {

WaitNotice::WaitNotice(Nanoseconds patience, const Clock& clock)
    : clock_(clock), begin_(clock.now()), next_(patience) {}

bool WaitNotice::is_due() {
  if (clock_.now() - begin_ < next_) {
    return false;
  }
  next_ = 3 * (clock_.now() - begin_);
  return true;
}

}  // namespace fsdptrain::comm
