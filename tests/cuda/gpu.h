#pragma once

#include <cstdint>
#include <functional>

#include <doctest/doctest.h>

#include "runtime/base/device.h"

// The device that the tests of this folder run on, linked into a program like its set of CUDA
// objects: a fake one (fake_gpu.cpp), or the first GPU of the machine (real_gpu.cpp).
namespace fsdptrain::testing {

inline constexpr Device kGpu = Device::cuda(0);

// A program that needs a GPU where there is none prints a line that CTest takes for "skipped".
bool has_gpu();

// Legal orders of operations that can be asked for, counted from 0. A GPU has one: its own.
std::uint64_t num_orders();

// Runs `body` with a rank context bound that has used no device yet; all that it makes there ends
// with it. On the fake the test fails if anything is reported. REQUIRES: has_gpu().
void on_gpu_in_order(std::uint64_t order, const std::function<void()>& body);

// In every order, or not at all.
inline void on_gpu(const std::function<void()>& body) {
  if (!has_gpu()) {
    return;
  }
  for (std::uint64_t order = 0; order < num_orders(); ++order) {
    CAPTURE(order);
    on_gpu_in_order(order, body);
  }
}

// Runs `body` where a program has CUDA and the machine has no device; on a machine with one it is
// skipped.
void without_gpu(const std::function<void()>& body);

// Whether operations on NaN give the same ones as the CPU, sign and payload included.
bool has_nans_of_cpu();

}  // namespace fsdptrain::testing
