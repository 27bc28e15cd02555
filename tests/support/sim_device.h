#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/device_api.h"

namespace fsdptrain::test {

// A GPU of which only the order of what it does is there: clocks say what comes before what, in the
// stream's order, by events, and by waits of the host. Its memory is the host's.
class SimDevice final : public DeviceApi {
 public:
  // How far each stream and the host (the last component) have come, as somebody knows.
  using Clock = std::vector<std::uint64_t>;
  // One operation: the number of its component, and its number there.
  struct Moment {
    std::size_t who = 0;
    std::uint64_t number = 0;
  };

  explicit SimDevice(std::size_t max_streams, std::size_t capacity = std::size_t{1} << 40)
      : clocks_(max_streams + 1, Clock(max_streams + 1)), capacity_(capacity) {}

  // An operation that is launched now, or done by the host where `stream` is null.
  Moment operate(void* stream) {
    const std::size_t who = component(stream);
    if (stream != nullptr) {
      join(clocks_[who], host());
    }
    return {who, ++clocks_[who][who]};
  }
  // Whether a moment comes before what is launched on the stream next.
  bool is_before(const Moment& moment, void* stream) const {
    const Clock& clock = clocks_[component(stream)];
    return clock[moment.who] >= moment.number || host()[moment.who] >= moment.number;
  }
  // Made so far.
  std::size_t num_events() const { return events_.size(); }
  // What was asked of the system so far, and the request that fails.
  std::int64_t num_requests = 0;
  std::int64_t failing_request = -1;

  Device device() const override { return Device::cuda(0); }
  std::string description() const override { return "simulated"; }
  void make_current() const override {}

  std::byte* allocate(std::size_t nbytes, MemoryKind) override {
    if (num_requests++ == failing_request || in_use_ + nbytes > capacity_) {
      return nullptr;
    }
    auto block = std::make_unique<std::byte[]>(nbytes);
    std::byte* const data = block.get();
    in_use_ += nbytes;
    blocks_[data] = {std::move(block), nbytes};
    return data;
  }
  void free(std::byte* data, std::size_t, MemoryKind) noexcept override {
    in_use_ -= blocks_[data].second;
    blocks_.erase(data);
  }
  void mark_block(std::byte*, std::size_t, std::size_t, void*) noexcept override {}

  void* create_stream(const std::string&) override {
    streams_.push_back(std::make_unique<int>());
    return streams_.back().get();
  }
  // Its clock stays: others may know it.
  void destroy_stream(void*) noexcept override {}
  void synchronize_stream(void* stream) override {
    join(clocks_.back(), clocks_[component(stream)]);
  }
  void* create_event(bool) override {
    events_.push_back(std::make_unique<Clock>(clocks_.size()));
    return events_.back().get();
  }
  void destroy_event(void*) noexcept override {}
  void record_event(void* event, void* stream) override {
    clock_of(event) = clocks_[component(stream)];
  }
  void wait_event(void* stream, void* event) override {
    join(clocks_[component(stream)], clock_of(event));
  }
  // As far from the truth as can be: nothing may depend on it.
  bool has_passed(void*) override { return false; }
  void synchronize_event(void* event) override { join(clocks_.back(), clock_of(event)); }
  double seconds_between(void*, void*) override { return 0; }
  void copy(void*, const void*, std::size_t, void* stream) override { operate(stream); }

 private:
  static Clock& clock_of(void* event) { return *static_cast<Clock*>(event); }
  const Clock& host() const { return clocks_.back(); }
  static void join(Clock& to, const Clock& from) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = std::max(to[i], from[i]);
    }
  }
  std::size_t component(void* stream) const {
    const auto found = std::ranges::find(
        streams_, stream, [](const auto& known) { return static_cast<void*>(known.get()); });
    return stream == nullptr ? clocks_.size() - 1
                             : static_cast<std::size_t>(found - streams_.begin());
  }

  std::vector<Clock> clocks_;
  std::vector<std::unique_ptr<int>> streams_;
  std::vector<std::unique_ptr<Clock>> events_;
  std::map<std::byte*, std::pair<std::unique_ptr<std::byte[]>, std::size_t>> blocks_;
  std::size_t capacity_;
  std::size_t in_use_ = 0;
};

}  // namespace fsdptrain::test
