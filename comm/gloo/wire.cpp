#include "comm/gloo/wire.h"

#include <span>
#include <utility>

#include "comm/signals.h"

namespace fsdptrain::comm {
namespace {

constexpr std::uint64_t kMessageSlot = 0;
// The peer's sends wait for room in it, so that it need not hold all.
constexpr std::size_t kInboxSize = 64;
// More than operations that are open at once can put there; the rest would wait.
constexpr std::size_t kOutboxSize = 512;

}  // namespace

Wire::Wire(Mesh& mesh, int peer, Handlers handlers)
    : peer_(peer),
      handlers_(std::move(handlers)),
      inbox_(kInboxSize),
      outbox_(kOutboxSize),
      incoming_(mesh, std::as_writable_bytes(std::span(inbox_))),
      outgoing_(mesh, std::as_bytes(std::span(outbox_))) {
  for (std::size_t i = 0; i < kInboxSize; ++i) {
    num_posted_ +=
        incoming_.receive(peer_, kMessageSlot, i * sizeof(Message), sizeof(Message)) ? 1 : 0;
  }
}

Wire::~Wire() {
  stop();
}

void Wire::start() {
  thread_ = thread_without_signals([this] { run(); });
}

void Wire::stop() {
  if (thread_.joinable()) {
    incoming_.stop_waiting();
    thread_.join();
  }
}

void Wire::run() {
  // Without a posted receive gloo tells nobody that the connection is gone.
  for (std::size_t place = 0; num_posted_ > 0; place = (place + 1) % kInboxSize) {
    if (!incoming_.wait_received()) {
      break;
    }
    const Message message = inbox_[place];
    num_posted_ -=
        incoming_.receive(peer_, kMessageSlot, place * sizeof(Message), sizeof(Message)) ? 0 : 1;
    handlers_.received(message);
  }
  handlers_.closed();
}

void Wire::send(const Message& message) {
  const std::lock_guard lock(mutex_);
  if (num_sent_ - num_gone_out_ == kOutboxSize) {
    if (!outgoing_.wait_sent()) {
      return;
    }
    ++num_gone_out_;
  }
  const std::size_t place = num_sent_ % kOutboxSize;
  outbox_[place] = message;
  num_sent_ +=
      outgoing_.send(peer_, kMessageSlot, place * sizeof(Message), sizeof(Message)) ? 1 : 0;
}

}  // namespace fsdptrain::comm
