#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "tests/fakecuda/fixture.h"
#include "tests/support/kernel_map.h"

// Kernels on the fake device, beside the same kernels on the CPU in the variant whose bits they
// have.
namespace fsdptrain::fakecuda {

inline Isa emulated_isa() {
  for (const Isa isa : supported_isas()) {
    if (name_of(isa) == FSDPTRAIN_EMULATED_ISA) {
      return isa;
    }
  }
  FAIL("this CPU cannot run the kernels of this build: " FSDPTRAIN_EMULATED_ISA);
  return Isa::Baseline;
}

inline Launch cpu_launch() {
  Launch launch = current_context().launch(Device::cpu());
  launch.isa = emulated_isa();
  return launch;
}

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
    Launch launch = cpu_launch();
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

// An operand: bytes, and the view that a kernel gets of them.
struct Array {
  std::vector<std::byte> bytes;
  View view;
};

template <class T>
Array array_of(const std::vector<T>& values, const Shape& sizes, const Strides& strides) {
  const auto bytes = std::as_bytes(std::span(values));
  return {{bytes.begin(), bytes.end()},
          testing::with_layout(testing::view_of(values), sizes, strides)};
}

using Body = std::function<void(const Launch&, const std::vector<View>&)>;

inline std::vector<View> views_at(const std::vector<Array>& arrays,
                                  const std::vector<std::byte*>& places) {
  std::vector<View> views;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    views.push_back(arrays[i].view);
    views.back().data = places[i];
  }
  return views;
}

// The arrays after body ran on them on the CPU and on the device are the same bytes, and nothing
// is reported.
inline void check_same_bits(std::uint64_t seed, const std::vector<Array>& arrays,
                            const Body& body) {
  std::vector<Array> expected = arrays;
  DeviceRun run(seed);
  std::vector<std::byte*> host;
  std::vector<std::byte*> device;
  for (Array& array : expected) {
    host.push_back(array.bytes.data());
    device.push_back(run.upload(array.bytes));
  }
  body(cpu_launch(), views_at(arrays, host));
  body(run.launch(), views_at(arrays, device));
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    CAPTURE(i);
    CHECK(run.download(device[i], arrays[i].bytes.size()) == expected[i].bytes);
  }
  expect_no_reports(run.session());
}

}  // namespace fsdptrain::fakecuda
