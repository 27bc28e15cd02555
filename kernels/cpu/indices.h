#pragma once

#include "kernels/functors/variant.h"
#include "runtime/base/view.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Calls fn with the indices as const std::int64_t* or const std::int32_t*.
template <class Fn>
FSDPTRAIN_HOST_DEVICE void dispatch_indices(const View& indices, const Fn& fn) {
  if (indices.dtype == DType::Int64) {
    fn(static_cast<const std::int64_t*>(indices.data));
  } else {
    fn(static_cast<const std::int32_t*>(indices.data));
  }
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
