#include <dnnl.h>
#include <omp.h>

#include "kernels/cpu/gemm_kernel.h"
#include "runtime/base/error.h"
#include "runtime/base/isa.h"

namespace fsdptrain::kernels::cpu {
namespace {

// Holds oneDNN to the variant that FSDPTRAIN_ISA asks for; possible only before its first use.
bool limit_isa() {
  switch (select_isa()) {
    case Isa::Baseline:
      return dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41) == dnnl_success;
    case Isa::Avx2:
      return dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2) == dnnl_success;
  }
  return false;
}

}  // namespace

void gemm_kernel(float* c, std::int64_t c_stride, GemmOperand<float> a, GemmOperand<float> b,
                 std::int64_t m, std::int64_t n, std::int64_t k, float beta) {
  static const bool limited = limit_isa();
  (void)limited;
  // The library must not split what is one tile of ours; the setting belongs to this thread.
  omp_set_num_threads(1);
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f, a.data,
                 a.stride, b.data, b.stride, beta, c, c_stride);
  check(status == dnnl_success, "matmul: oneDNN refused {} x {} x {} with status {}", m, n, k,
        static_cast<int>(status));
}

}  // namespace fsdptrain::kernels::cpu
