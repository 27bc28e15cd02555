#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"
#include "tests/cuda/gpu.h"

// Programs of copies alone: what the device layer does shows without a kernel.
namespace fsdptrain::testing {

inline DeviceContext& gpu() {
  return current_context().device(kGpu);
}

// first, first + 1, ... in pinned memory.
inline Tensor counted(std::int64_t numel, float first = 0) {
  Tensor host = pinned({numel}, DType::Float32, kGpu);
  const auto values = host.mutable_values<float>();
  std::iota(values.begin(), values.end(), first);
  return host;
}

inline Tensor empty_on_gpu(std::int64_t numel) {
  return Tensor::empty({numel}, DType::Float32, kGpu);
}

// The same on the device, by the current stream.
inline Tensor counted_on_gpu(std::int64_t numel, float first = 0) {
  Tensor out = empty_on_gpu(numel);
  copy_async(out, counted(numel, first));
  return out;
}

// Whether the host waits for first, first + 1, ... behind the current stream.
inline bool holds_counted(const Tensor& tensor, float first = 0) {
  const Tensor host = to_device(tensor, Device::cpu());
  std::vector<float> expected(static_cast<std::size_t>(host.numel()));
  std::iota(expected.begin(), expected.end(), first);
  return std::ranges::equal(host.values<float>(), expected);
}

}  // namespace fsdptrain::testing
