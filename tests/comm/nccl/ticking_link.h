#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "comm/link/link.h"

namespace fsdptrain::testing {

// Each look at it is a little later: waits end without taking time.
class TickingClock final : public comm::Clock {
 public:
  explicit TickingClock(comm::Nanoseconds tick) : tick_(tick) {}
  comm::Nanoseconds now() const override { return tick_ * num_looks_++; }

 private:
  comm::Nanoseconds tick_;
  mutable std::atomic<std::int64_t> num_looks_ = 0;
};

// A link with another clock.
class TickingLink final : public comm::Link {
 public:
  TickingLink(std::unique_ptr<comm::Link> link, const comm::Clock& clock)
      : link_(std::move(link)), clock_(clock) {}

  const comm::Clock& clock() const override { return clock_; }
  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  void post(const comm::Meeting& meeting, const comm::Frame& frame) override {
    link_->post(meeting, frame);
  }
  std::optional<comm::Frame> frame(const comm::Meeting& meeting) override {
    return link_->frame(meeting);
  }
  void offer(std::span<const comm::Meeting> readers, int phase,
             std::span<const std::byte> bytes) override {
    link_->offer(readers, phase, bytes);
  }
  bool advance(std::span<const comm::Meeting> meetings) override {
    return link_->advance(meetings);
  }
  std::span<const std::byte> peek(const comm::Meeting& meeting, int phase, std::size_t offset,
                                  std::size_t limit) override {
    return link_->peek(meeting, phase, offset, limit);
  }
  void consume(const comm::Meeting& meeting, int phase, std::size_t offset) override {
    link_->consume(meeting, phase, offset);
  }
  void finish(const comm::Meeting& meeting) override { link_->finish(meeting); }
  bool finished(const comm::Meeting& meeting) override { return link_->finished(meeting); }
  std::uint32_t changes() const override { return link_->changes(); }
  void rest(std::uint32_t changes, comm::Nanoseconds limit) override {
    link_->rest(changes, limit);
  }
  comm::Presence presence(int peer) override { return link_->presence(peer); }
  void report_failure(std::string_view text) noexcept override { link_->report_failure(text); }
  void check_failure() override { link_->check_failure(); }
  std::shared_ptr<Storage> allocate(std::size_t nbytes) override { return link_->allocate(nbytes); }
  void set_position(const comm::Position& position) override { link_->set_position(position); }
  comm::Position position(int rank) override { return link_->position(rank); }

 private:
  std::unique_ptr<comm::Link> link_;
  const comm::Clock& clock_;
};

}  // namespace fsdptrain::testing
