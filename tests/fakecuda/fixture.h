#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakecuda/expect.h"

// Raw CUDA calls as tests of the fake write them.
namespace fsdptrain::fakecuda {

inline void succeed(cudaError_t error) {
  REQUIRE(std::string(cudaGetErrorName(error)) == "cudaSuccess");
}

// The three fixed orders and some random ones.
inline constexpr std::uint64_t kNumOrders = 12;

template <class Body>
void in_all_orders(Body body) {
  for (std::uint64_t seed = 0; seed < kNumOrders; ++seed) {
    CAPTURE(seed);
    body(seed);
  }
}

template <class T>
Range range(const T* data, std::size_t numel) {
  return {data, numel * sizeof(T)};
}

// Makes things on the current device and destroys all of them in the end.
class Things {
 public:
  cudaStream_t stream() {
    cudaStream_t made = nullptr;
    succeed(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return streams_.emplace_back(made);
  }
  cudaEvent_t event(unsigned flags = cudaEventDisableTiming) {
    cudaEvent_t made = nullptr;
    succeed(cudaEventCreateWithFlags(&made, flags));
    return events_.emplace_back(made);
  }
  template <class T = float>
  T* device(std::size_t numel) {
    void* made = nullptr;
    succeed(cudaMalloc(&made, numel * sizeof(T)));
    device_.push_back(made);
    return static_cast<T*>(made);
  }
  template <class T = float>
  T* pinned(std::size_t numel) {
    void* made = nullptr;
    succeed(cudaMallocHost(&made, numel * sizeof(T)));
    pinned_.push_back(made);
    return static_cast<T*>(made);
  }

  void destroy() {
    for (const cudaStream_t stream : streams_) {
      succeed(cudaStreamSynchronize(stream));
    }
    for (void* memory : std::exchange(device_, {})) {
      succeed(cudaFree(memory));
    }
    for (void* memory : std::exchange(pinned_, {})) {
      succeed(cudaFreeHost(memory));
    }
    for (const cudaEvent_t event : std::exchange(events_, {})) {
      succeed(cudaEventDestroy(event));
    }
    for (const cudaStream_t stream : std::exchange(streams_, {})) {
      succeed(cudaStreamDestroy(stream));
    }
  }

 private:
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<void*> device_;
  std::vector<void*> pinned_;
};

// An operation that touches what it says and does nothing.
inline void launch(cudaStream_t stream, std::string name, std::vector<Range> reads,
                   std::vector<Range> writes) {
  succeed(enqueue(
      stream, {.name = std::move(name), .reads = std::move(reads), .writes = std::move(writes)}));
}

}  // namespace fsdptrain::fakecuda
