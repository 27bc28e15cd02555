#include <cstring>
#include <new>

#include "runtime/base/allocator.h"
#include "runtime/base/device_api.h"
#include "runtime/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace fsdptrain {
namespace {

// Everything is done when its call returns, so there is nothing to wait for.
class HostApi final : public DeviceApi {
 public:
  explicit HostApi(Device device) : device_(device) {}

  Device device() const override { return device_; }
  std::string description() const override { return fmt::format("{}", device_); }
  void make_current() const override {}

  std::byte* allocate(std::size_t nbytes, MemoryKind) override {
    return static_cast<std::byte*>(
        ::operator new (nbytes, std::align_val_t{kAlignment}, std::nothrow));
  }
  void free(std::byte* data, std::size_t nbytes, MemoryKind) noexcept override {
    mark_block(data, nbytes, nbytes, nullptr);
    ::operator delete (data, std::align_val_t{kAlignment});
  }
  void mark_block([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t nbytes,
                  [[maybe_unused]] std::size_t block_bytes, void*) noexcept override {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_POISON_MEMORY_REGION(data, block_bytes);
    ASAN_UNPOISON_MEMORY_REGION(data, nbytes);
#endif
  }

  void* create_stream(const std::string&) override {
    return nullptr;
  }
  void destroy_stream(void*) noexcept override {}
  void synchronize_stream(void*) override {}
  void* create_event(bool) override {
    return nullptr;
  }
  void destroy_event(void*) noexcept override {}
  void record_event(void*, void*) override {}
  void wait_event(void*, void*) override {}
  bool has_passed(void*) override {
    return true;
  }
  void synchronize_event(void*) override {}
  double seconds_between(void*, void*) override {
    fail<DeviceError>("seconds_between: nothing takes time on a stream of {}", device_);
  }

  void copy(void* to, const void* from, std::size_t nbytes, void*) override {
    if (nbytes != 0 && device_.type == DeviceType::Cpu) {
      std::memcpy(to, from, nbytes);
    }
  }

 private:
  Device device_;
};

}  // namespace

std::shared_ptr<DeviceApi> make_host_api(Device device) {
  check<DeviceError>(device.type != DeviceType::Cuda, "host: {} is no device of the host", device);
  return std::make_shared<HostApi>(device);
}

}  // namespace fsdptrain
