#pragma once

#include <memory>
#include <string>

#include "runtime/base/allocator.h"
#include "runtime/base/device_api.h"
#include "runtime/base/stream.h"

namespace fsdptrain {

// What a rank has of one device: memory, and the stream that its ops are launched on. Used by the
// thread that the rank context is bound to.
class DeviceContext {
 public:
  explicit DeviceContext(std::shared_ptr<DeviceApi> api);
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;
  ~DeviceContext() = default;

  const std::shared_ptr<DeviceApi>& api() const { return api_; }
  Allocator& allocator() { return *allocator_; }
  // Memory of the host for copies from and to this device; plain memory on the CPU.
  Allocator& pinned() { return *pinned_; }

  // Where ops are launched while no StreamGuard says otherwise.
  const Stream& compute_stream() const { return compute_; }
  const Stream& current_stream() const { return *current_; }
  // A further one.
  Stream make_stream(const std::string& name) const { return {api_, name}; }

 private:
  friend class StreamGuard;

  std::shared_ptr<DeviceApi> api_;
  Stream compute_;
  // Set by StreamGuard; allocators look at it, also those that outlive the context.
  std::shared_ptr<Stream> current_;
  std::shared_ptr<Allocator> allocator_;
  std::shared_ptr<Allocator> pinned_;
};

}  // namespace fsdptrain
