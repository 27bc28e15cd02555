#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/allocator.h"
#include "runtime/base/device.h"

namespace fsdptrain {

// The bytes under one or more tensors, on one device. They can be released and restored in
// place: every tensor that shares the storage, views and tensors saved for backward included,
// sees the bytes go and come back, because nobody keeps the address. On meta everything but the
// bytes is real. Used by one thread, the one its rank context is bound to.
class Storage {
 public:
  // Own bytes from the bound rank context.
  static std::shared_ptr<Storage> allocate(Device device, std::size_t nbytes,
                                           MemoryCategory category);
  // Without bytes until restore(address): their owner keeps the memory.
  static std::shared_ptr<Storage> placed(Device device, std::size_t nbytes);
  // Those of an allocation, which it keeps until release(); once released they do not come back.
  static std::shared_ptr<Storage> holding(Device device, std::size_t nbytes, Allocation allocation);
  // Own bytes on the CPU, for copies from and to `device` that run beside the host; plain ones
  // where that is the CPU itself.
  static std::shared_ptr<Storage> pinned(Device device, std::size_t nbytes,
                                         MemoryCategory category);

  Device device() const { return device_; }
  std::size_t nbytes() const { return nbytes_; }
  bool released() const { return !present_; }

  // Null on meta. StorageError naming the storage while it is released. The caller uses own bytes
  // on the current stream of the device, or says on which by note_use().
  std::byte* data() const;
  // What is launched on `stream` uses the bytes: they go to nobody else before it has passed. What
  // keeps bytes that are placed is for their owner to know; a device is done with plain memory of
  // the host when the call that named it returns.
  void note_use(const Stream& stream) const;

  // Frees own bytes, or forgets the owner's address. No effect if released.
  void release();
  // Brings own bytes back, not initialised, at an address that may be another.
  void restore();
  // Places the storage at `nbytes()` bytes that the caller keeps alive until release().
  void restore(std::byte* address);

  // Counts in-place writes; restore() is none.
  std::uint64_t version() const { return version_; }
  void bump_version() { ++version_; }

  // What errors call it, for example the parameter "h.0.attn.c_attn.weight".
  const std::string& name() const { return name_; }
  void set_name(std::string name);

 private:
  Storage(Device device, std::size_t nbytes) : device_(device), nbytes_(nbytes) {}
  Allocator& allocator() const;

  Device device_;
  std::size_t nbytes_;
  bool present_ = false;
  std::byte* data_ = nullptr;
  // Reading notes who reads.
  mutable Allocation allocation_;
  // Whose copies the bytes are pinned for.
  std::optional<Device> pinned_for_;
  MemoryCategory category_ = MemoryCategory::Activation;
  bool owns_bytes_ = false;
  std::uint64_t version_ = 0;
  std::string name_;
};

}  // namespace fsdptrain
