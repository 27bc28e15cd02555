#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cuda/kernels/arrays.h"
#include "tests/fakecuda/fixture.h"

// Kernels on the fake device, with its own calls instead of the device layer's.
namespace fsdptrain::fakecuda {

// One stream of one device, and memory that lives as long.
class DeviceRun {
 public:
  explicit DeviceRun(std::uint64_t seed) : session_(checked({.seed = seed})) {
    succeed(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;
  ~DeviceRun() {
    synchronize();
    for (void* memory : memory_) {
      cudaFree(memory);
    }
    cudaStreamDestroy(stream_);
  }

  Session& session() { return session_; }

  Launch launch() {
    Launch launch = testing::cpu_launch();
    launch.device = Device::cuda(0);
    launch.stream = stream_;
    return launch;
  }

  // Not initialised.
  std::byte* allocate(std::size_t nbytes) {
    void* data = nullptr;
    // CUDA gives no memory for 0 bytes.
    succeed(cudaMalloc(&data, nbytes + (nbytes == 0 ? 1 : 0)));
    memory_.push_back(data);
    return static_cast<std::byte*>(data);
  }
  std::byte* upload(std::span<const std::byte> bytes) {
    std::byte* const data = allocate(bytes.size());
    succeed(cudaMemcpyAsync(data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_));
    return data;
  }
  std::vector<std::byte> download(const std::byte* data, std::size_t nbytes) {
    std::vector<std::byte> bytes(nbytes);
    succeed(cudaMemcpyAsync(bytes.data(), data, nbytes, cudaMemcpyDeviceToHost, stream_));
    synchronize();
    return bytes;
  }
  void synchronize() { succeed(cudaStreamSynchronize(stream_)); }

 private:
  Session session_;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace fsdptrain::fakecuda
