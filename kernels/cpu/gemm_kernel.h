#pragma once

#include <cstdint>

// One tile of a matrix product on the calling thread: the only place that calls a matrix library,
// but for the benchmark's roof, the library with threads of its own (tools/bench).
namespace fsdptrain::kernels::cpu {

// A row-major matrix, or the transpose of one: element (i, j) is data[i * stride + j], or
// data[j * stride + i] if transposed.
template <class T>
struct GemmOperand {
  const T* data;
  std::int64_t stride;
  bool transposed;
};

// Readies the library, on the calling thread and before a parallel region: see kernels/matmul.h.
// ConfigError if it cannot be held to the ISA variant of this process.
void prepare_gemm();

// c[i * c_stride + j] = sum over p of a(i, p) b(p, j) + beta * c, for m x n elements. With
// beta = 0, c is not read. False if the library refuses: this runs in tasks, which do not throw.
bool gemm_kernel(float* c, std::int64_t c_stride, GemmOperand<float> a, GemmOperand<float> b,
                 std::int64_t m, std::int64_t n, std::int64_t k, float beta);
bool gemm_kernel(double* c, std::int64_t c_stride, GemmOperand<double> a, GemmOperand<double> b,
                 std::int64_t m, std::int64_t n, std::int64_t k, double beta);

}  // namespace fsdptrain::kernels::cpu
