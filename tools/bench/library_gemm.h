#pragma once

#include <cstdint>

// The matrix library on threads of its own: what our products are measured against.
namespace fsdptrain::tools {

// A product of dense row-major matrices: c[m, n] = a b + beta * c, where a is stored as [k, m] if
// `a_transposed`, else [m, k], and b as [n, k] if `b_transposed`, else [k, n].
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
};

// False where the build has no library with threads of its own (FSDPTRAIN_GEMM=eigen).
bool has_library_gemm();

// dnnl_sgemm on `threads` threads of OpenMP, held to the ISA variant of this process as our own
// products are. Error where there is none or it refuses.
void library_gemm(int threads, const GemmShape& shape, const float* a, const float* b, float beta,
                  float* c);

}  // namespace fsdptrain::tools
