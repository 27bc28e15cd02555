#include "comm/work.h"

#include <utility>

#include "comm/collective/channel.h"
#include "comm/error.h"

namespace fsdptrain::comm {

Work::Work(Channel& channel, std::shared_ptr<Batch> batch)
    : batch_(std::move(batch)), channel_(&channel) {}

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    drop();
    batch_ = std::move(other.batch_);
    channel_ = other.channel_;
    was_waited_for_ = other.was_waited_for_;
  }
  return *this;
}

Work::~Work() {
  drop();
}

void Work::drop() noexcept {
  if (batch_ && !was_waited_for_) {
    channel_->drop(*batch_);
  }
  batch_.reset();
}

void Work::wait() {
  check<MisuseError>(batch_ != nullptr, "wait: this Work was moved from");
  if (!was_waited_for_) {
    channel_->wait(*batch_);
    was_waited_for_ = true;
  }
}

}  // namespace fsdptrain::comm
