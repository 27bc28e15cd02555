#pragma once

#include <cstdint>

#include "runtime/base/allocator.h"
#include "runtime/base/device.h"
#include "runtime/base/dtype.h"
#include "runtime/base/isa.h"
#include "runtime/base/shape.h"
#include "runtime/base/thread_pool.h"

namespace fsdptrain {

class KernelProfile;

// Untyped, non-owning window on device memory: the only tensor that kernels see. A plain struct,
// because kernel units may hold no inline code with external linkage. `data` is null on meta.
struct View {
  void* data = nullptr;
  DType dtype = DType::Float32;
  int dims = 0;
  std::int64_t sizes[kMaxDims] = {};
  std::int64_t strides[kMaxDims] = {};  // in elements
};

// Where a kernel runs and what it may use there.
struct Launch {
  Device device;
  Isa isa = Isa::Baseline;
  ThreadPool* pool = nullptr;
  // Workspace comes from here, on the calling thread, on every device.
  Allocator* allocator = nullptr;
  // A cudaStream_t on CUDA, else null.
  void* stream = nullptr;
  // What adds up the time of the launch, or null (kernel_profile.h).
  KernelProfile* profile = nullptr;
};

}  // namespace fsdptrain
