#include "runtime/base/stream.h"

#include <utility>

namespace fsdptrain {

Stream::State::State(std::shared_ptr<DeviceApi> device_api, std::string stream_name)
    : api(std::move(device_api)), name(std::move(stream_name)), handle(api->create_stream(name)) {}

Stream::State::~State() {
  api->destroy_stream(handle);
}

Stream::Stream(std::shared_ptr<DeviceApi> api, const std::string& name)
    : state_(std::make_shared<const State>(std::move(api), name)) {}

void Stream::wait(const Event& event) const {
  if (state_) {
    state_->api->wait_event(handle(), event.handle());
  }
}

void Stream::wait(const Stream& other) const {
  if (other == *this || !other.state_) {
    return;
  }
  // The device keeps what was recorded; the event itself may go.
  Event event(other.api());
  event.record(other);
  wait(event);
}

void Stream::synchronize() const {
  if (state_) {
    state_->api->synchronize_stream(handle());
  }
}

Event::Event(std::shared_ptr<DeviceApi> api, Kind kind)
    : api_(std::move(api)), handle_(api_->create_event(kind == Kind::Timed)) {}

Event::Event(Event&& other) noexcept
    : api_(std::move(other.api_)), handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (api_) {
    api_->destroy_event(handle_);
  }
}

void Event::record(const Stream& stream) {
  api_->record_event(handle_, stream.handle());
}

bool Event::has_passed() const {
  return api_->has_passed(handle_);
}

void Event::synchronize() const {
  api_->synchronize_event(handle_);
}

double Event::seconds_since(const Event& earlier) const {
  return api_->seconds_between(earlier.handle_, handle_);
}

}  // namespace fsdptrain
