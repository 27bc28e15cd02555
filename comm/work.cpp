#include "comm/work.h"

#include <utility>

#include "comm/error.h"

namespace fsdptrain::comm {

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    drop();
    pending_ = std::move(other.pending_);
    was_waited_for_ = other.was_waited_for_;
  }
  return *this;
}

Work::~Work() {
  drop();
}

void Work::drop() noexcept {
  if (pending_ && !was_waited_for_) {
    pending_->drop();
  }
  pending_.reset();
}

void Work::wait() {
  check<MisuseError>(pending_ != nullptr, "wait: this Work was moved from");
  if (!was_waited_for_) {
    pending_->wait();
    was_waited_for_ = true;
  }
}

}  // namespace fsdptrain::comm
