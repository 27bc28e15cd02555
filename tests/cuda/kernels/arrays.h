#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/dispatch.h"
#include "kernels/functors/element.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"
#include "tests/cuda/gpu.h"
#include "tests/support/kernel_map.h"

// Kernels on a device, beside the same kernels on the CPU in the variant whose bits they have.
namespace fsdptrain::testing {

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

// An operand: bytes, and the view that a kernel gets of them.
struct Array {
  std::vector<std::byte> bytes;
  View view;
};

template <class T>
Array array_of(const std::vector<T>& values, const Shape& sizes, const Strides& strides) {
  const auto bytes = std::as_bytes(std::span(values));
  return {{bytes.begin(), bytes.end()}, with_layout(view_of(values), sizes, strides)};
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

// The same bytes; where the device has NaNs of its own, one is as good as another.
inline bool same_values(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  if (has_nans_of_cpu()) {
    return std::ranges::equal(a, b);
  }
  return dispatch_any(dtype, [&]<class T>() {
    for (std::size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
      T x{};
      T y{};
      std::memcpy(&x, &a[at], sizeof(T));
      std::memcpy(&y, &b[at], sizeof(T));
      const auto is_nan = [](T value) { return kernels::load(value) != kernels::load(value); };
      if (std::memcmp(&x, &y, sizeof(T)) != 0 && !(is_nan(x) && is_nan(y))) {
        return false;
      }
    }
    return a.size() == b.size();
  });
}

inline Tensor bytes_on_gpu(std::span<const std::byte> bytes) {
  const Tensor host = pinned({static_cast<std::int64_t>(bytes.size())}, DType::UInt8, kGpu);
  std::ranges::copy(bytes, host.mutable_bytes().begin());
  return to_device(host, kGpu);
}

// The arrays after body ran on them on the CPU and on the device are the same.
inline void check_bits_of_cpu(std::uint64_t order, const std::vector<Array>& arrays,
                              const Body& body) {
  on_gpu_in_order(order, [&] {
    std::vector<Array> expected = arrays;
    std::vector<Tensor> tensors;
    std::vector<std::byte*> host;
    std::vector<std::byte*> device;
    for (Array& array : expected) {
      host.push_back(array.bytes.data());
      tensors.push_back(bytes_on_gpu(array.bytes));
      device.push_back(tensors.back().storage()->data());
    }
    body(cpu_launch(), views_at(arrays, host));
    Launch launch = current_context().launch(kGpu);
    launch.isa = emulated_isa();
    body(launch, views_at(arrays, device));
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      CAPTURE(i);
      const Tensor result = to_device(tensors[i], Device::cpu());
      CHECK(same_values(arrays[i].view.dtype, result.bytes(), expected[i].bytes));
    }
  });
}

}  // namespace fsdptrain::testing
