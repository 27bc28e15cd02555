
#include <cuda_runtime_api.h>

#include "runtime/base/cuda/check.h"
#include "runtime/base/cuda/checker.h"
#include "runtime/base/device_api.h"
#include "runtime/base/error.h"

namespace fsdptrain {
namespace {

using cuda::check_status;

void check_index(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess && status != cudaErrorNoDevice) {
    static_cast<void>(cudaGetLastError());
    fail<DeviceError>(
        "{}: this machine has no CUDA driver that serves this program: CUDA says {}: "
        "{}",
        Device::cuda(index), cudaGetErrorName(status), cudaGetErrorString(status));
  }
  check<DeviceError>(0 <= index && index < count, "{}: this machine has {} CUDA devices",
                     Device::cuda(index), count);
}

class CudaApi final : public DeviceApi {
 public:
  explicit CudaApi(int index) : index_(index) {}

  Device device() const override { return Device::cuda(index_); }

  std::string description() const override {
    cudaDeviceProp properties{};
    check_status("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, index_));
    return fmt::format("{}: {}, {} bytes, compute capability {}.{}", device(), properties.name,
                       properties.totalGlobalMem, properties.major, properties.minor);
  }

  // CUDA keeps the current device by thread, and threads come and go.
  void make_current() const override { check_status("cudaSetDevice", cudaSetDevice(index_)); }

  std::byte* allocate(std::size_t nbytes, MemoryKind kind) override {
    make_current();
    void* data = nullptr;
    const cudaError_t status = kind == MemoryKind::Device
                                   ? cudaMalloc(&data, nbytes)
                                   : cudaHostAlloc(&data, nbytes, cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    check_status(kind == MemoryKind::Device ? "cudaMalloc" : "cudaHostAlloc", status);
    return static_cast<std::byte*>(data);
  }

  // What a failed device says of its memory, it has said before.
  void free(std::byte* data, std::size_t, MemoryKind kind) noexcept override {
    // It may be a thread that ends a rank, with a device of its own.
    int current = 0;
    static_cast<void>(cudaGetDevice(&current));
    static_cast<void>(cudaSetDevice(index_));
    static_cast<void>(kind == MemoryKind::Device ? cudaFree(data) : cudaFreeHost(data));
    static_cast<void>(cudaSetDevice(current));
  }

  void mark_block(std::byte* data, std::size_t nbytes, std::size_t block_bytes,
                  void* stream) noexcept override {
    cuda::mark_block(data, nbytes, block_bytes, stream);
  }

  void* create_stream(const std::string& name) override {
    make_current();
    cudaStream_t stream = nullptr;
    check_status("cudaStreamCreateWithFlags",
                 cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda::name_stream(stream, name);
    return stream;
  }

  void destroy_stream(void* stream) noexcept override {
    static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  }

  void synchronize_stream(void* stream) override {
    check_status("cudaStreamSynchronize", cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  }

  void* create_event(bool is_timed) override {
    make_current();
    cudaEvent_t event = nullptr;
    check_status(
        "cudaEventCreateWithFlags",
        cudaEventCreateWithFlags(&event, is_timed ? cudaEventDefault : cudaEventDisableTiming));
    return event;
  }

  void destroy_event(void* event) noexcept override {
    static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
  }

  void record_event(void* event, void* stream) override {
    check_status("cudaEventRecord", cudaEventRecord(static_cast<cudaEvent_t>(event),
                                                    static_cast<cudaStream_t>(stream)));
  }

  void wait_event(void* stream, void* event) override {
    check_status("cudaStreamWaitEvent", cudaStreamWaitEvent(static_cast<cudaStream_t>(stream),
                                                            static_cast<cudaEvent_t>(event), 0));
  }

  bool has_passed(void* event) override {
    const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check_status("cudaEventQuery", status);
    return true;
  }

  void synchronize_event(void* event) override {
    check_status("cudaEventSynchronize", cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
  }

  double seconds_between(void* earlier, void* later) override {
    float milliseconds = 0;
    check_status("cudaEventElapsedTime",
                 cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier),
                                      static_cast<cudaEvent_t>(later)));
    return static_cast<double>(milliseconds) / 1e3;
  }

  void copy(void* to, const void* from, std::size_t nbytes, void* stream) override {
    if (nbytes != 0) {
      check_status("cudaMemcpyAsync", cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault,
                                                      static_cast<cudaStream_t>(stream)));
    }
  }

 private:
  int index_;
};

}  // namespace

std::shared_ptr<DeviceApi> make_cuda_api(int index) {
  check_index(index);
  return std::make_shared<CudaApi>(index);
}

}  // namespace fsdptrain
