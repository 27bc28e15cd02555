#pragma once

#include <span>
#include <vector>

#include "runtime/base/view.h"

namespace fsdptrain::kernels {

// An array of the host that a kernel reads: the caller's own on the CPU, where the kernel is done
// when its launch returns; a copy on CUDA, where it may run later.
template <class T>
class HostArray {
 public:
  HostArray(const Launch& launch, std::span<const T> values) : values_(values) {
    if (launch.device.type == DeviceType::Cuda) {
      copy_.assign(values.begin(), values.end());
      is_copied_ = true;
    }
  }

  std::span<const T> get() const { return is_copied_ ? std::span<const T>(copy_) : values_; }

 private:
  std::span<const T> values_;
  std::vector<T> copy_;
  bool is_copied_ = false;
};

}  // namespace fsdptrain::kernels
