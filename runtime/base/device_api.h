#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/device.h"

namespace fsdptrain {

enum class MemoryKind : std::uint8_t {
  Device,
  // Of the host, where copies from and to the device run beside the thread that asked for them.
  Pinned,
};

// What a device does for the ranks that use it: memory, streams, events, copies. The one place that
// knows how: everything above speaks of Stream, Event and Allocator. Handles are of the device and
// null on the CPU, where what is asked for is done when the call returns.
//
// From any thread, one at a time. DeviceError, naming the call and what the device said, for what a
// device refuses; after a failure of the device itself every later call says so again.
class DeviceApi {
 public:
  DeviceApi() = default;
  DeviceApi(const DeviceApi&) = delete;
  DeviceApi& operator=(const DeviceApi&) = delete;
  virtual ~DeviceApi() = default;

  virtual Device device() const = 0;
  // For people: the device's own name, and its bytes of memory.
  virtual std::string description() const = 0;
  // What the thread launches from here on goes to this device.
  virtual void make_current() const = 0;

  // Aligned to kAlignment at least, not initialised; null if there is no more.
  virtual std::byte* allocate(std::size_t nbytes, MemoryKind kind) = 0;
  // Nothing under way uses the block any more.
  virtual void free(std::byte* data, std::size_t nbytes, MemoryKind kind) noexcept = 0;
  // For checkers of memory: from here on in the stream's order, the first `nbytes` of a block are
  // in use and not initialised, and the rest of it belongs to nobody.
  virtual void mark_block(std::byte* data, std::size_t nbytes, std::size_t block_bytes,
                          void* stream) noexcept = 0;

  // Streams wait for nothing that they are not told to. Checkers and timelines are told the name.
  virtual void* create_stream(const std::string& name) = 0;
  // What was launched there is done before the stream is gone.
  virtual void destroy_stream(void* stream) noexcept = 0;
  // Blocks until all that was launched on the stream is done.
  virtual void synchronize_stream(void* stream) = 0;

  virtual void* create_event(bool is_timed) = 0;
  virtual void destroy_event(void* event) noexcept = 0;
  // The event passes when all that was launched on the stream up to here is done.
  virtual void record_event(void* event, void* stream) = 0;
  // What is launched on the stream from here on waits for the latest record of the event.
  virtual void wait_event(void* stream, void* event) = 0;
  virtual bool has_passed(void* event) = 0;
  virtual void synchronize_event(void* event) = 0;
  // Between two timed events that have passed.
  virtual double seconds_between(void* earlier, void* later) = 0;

  // Between any two of this device's memory, pinned and other host memory, in the stream's order.
  virtual void copy(void* to, const void* from, std::size_t nbytes, void* stream) = 0;
};

// The CPU, or the meta device, which has no bytes.
std::shared_ptr<DeviceApi> make_host_api(Device device);

// A GPU, by the CUDA runtime. DeviceError if this program was built without CUDA, or the machine
// has no driver or no such device. Linked into a program by the set that it chose
// (docs/cuda-without-a-gpu.md).
std::shared_ptr<DeviceApi> make_cuda_api(int index);

}  // namespace fsdptrain
