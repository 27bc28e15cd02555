#include <dnnl.h>
#include <omp.h>

#include "kernels/cpu/gemm_kernel.h"
#include "runtime/base/error.h"
#include "tools/bench/library_gemm.h"

namespace fsdptrain::tools {

bool has_library_gemm() {
  return true;
}

void library_gemm(int threads, const GemmShape& shape, const float* a, const float* b, float beta,
                  float* c) {
  kernels::cpu::prepare_gemm();
  omp_set_num_threads(threads);
  const dnnl_status_t status =
      dnnl_sgemm(shape.a_transposed ? 'T' : 'N', shape.b_transposed ? 'T' : 'N', shape.m, shape.n,
                 shape.k, 1.0f, a, shape.a_transposed ? shape.m : shape.k, b,
                 shape.b_transposed ? shape.k : shape.n, beta, c, shape.n);
  check(status == dnnl_success, "bench: dnnl_sgemm refused a product {} x {} x {} (status {})",
        shape.m, shape.n, shape.k, static_cast<int>(status));
}

}  // namespace fsdptrain::tools
