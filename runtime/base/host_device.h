#pragma once

// Functions that run on the host, in CUDA kernels and in every ISA variant of the CPU kernels.
// They are always inlined: a copy with external linkage, compiled for one instruction set, could
// be chosen by the linker for a caller of another.
#if defined(__CUDACC__)
#define FSDPTRAIN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define FSDPTRAIN_HOST_DEVICE [[gnu::always_inline]] inline
#endif
