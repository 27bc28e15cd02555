#pragma once

#include "runtime/base/host_device.h"

// The namespace of code that is compiled more than once: once per ISA variant of the CPU kernels
// (FSDPTRAIN_VARIANT comes from the build: baseline, avx2, avx512), once by nvcc, once for plain
// host code. Everything in it is FSDPTRAIN_HOST_DEVICE, so that no copy reaches the linker.
#if !defined(FSDPTRAIN_VARIANT)
#if defined(__CUDACC__)
#define FSDPTRAIN_VARIANT device
#else
#define FSDPTRAIN_VARIANT portable
#endif
#endif
