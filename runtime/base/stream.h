#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/device_api.h"

namespace fsdptrain {

class Event;

// A queue of a device, whose operations run in the order of their launch and beside those of other
// streams. On the CPU every launch is done when it returns, and waiting has no effect; code that
// uses streams is the same there. Copies are the same stream, and it ends with the last of them; an
// allocator keeps one of each stream that its blocks belong to. Used by the thread of its rank
// context.
class Stream {
 public:
  // The host's own order, in which everything is done at once.
  Stream() = default;
  Stream(std::shared_ptr<DeviceApi> api, const std::string& name);

  Device device() const { return state_ ? state_->api->device() : Device::cpu(); }
  // What errors and timelines call it.
  std::string_view name() const { return state_ ? std::string_view(state_->name) : "host"; }
  // A cudaStream_t on CUDA; null on the CPU.
  void* handle() const { return state_ ? state_->handle : nullptr; }
  // Null for the host's own order.
  std::shared_ptr<DeviceApi> api() const { return state_ ? state_->api : nullptr; }

  // What is launched on this stream from here on waits for the event's latest record, or for all
  // that `other` has got so far; the host goes on.
  void wait(const Event& event) const;
  void wait(const Stream& other) const;
  // Blocks the host until all that was launched here is done.
  void synchronize() const;

  friend bool operator==(const Stream& a, const Stream& b) { return a.state_ == b.state_; }

 private:
  struct State {
    State(std::shared_ptr<DeviceApi> device_api, std::string stream_name);
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();

    std::shared_ptr<DeviceApi> api;
    std::string name;
    void* handle;
  };
  std::shared_ptr<const State> state_;
};

// A mark in the order of a stream. It passes when all that was launched before its latest record is
// done; one that was never recorded has passed.
class Event {
 public:
  enum class Kind { Order, Timed };

  explicit Event(std::shared_ptr<DeviceApi> api, Kind kind = Kind::Order);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  void record(const Stream& stream);
  bool has_passed() const;
  // Blocks the host.
  void synchronize() const;
  // Of two timed events that have passed.
  double seconds_since(const Event& earlier) const;
  Device device() const { return api_->device(); }
  void* handle() const { return handle_; }

 private:
  // Null once it was moved from.
  std::shared_ptr<DeviceApi> api_;
  void* handle_ = nullptr;
};

}  // namespace fsdptrain
