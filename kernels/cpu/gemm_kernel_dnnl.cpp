#include <dnnl.h>
#include <omp.h>

#include "kernels/cpu/gemm_kernel.h"
#include "runtime/base/error.h"
#include "runtime/base/isa.h"

namespace fsdptrain::kernels::cpu {
namespace {

dnnl_cpu_isa_t to_dnnl(Isa isa) {
  switch (isa) {
    case Isa::Baseline:
      return dnnl_cpu_isa_sse41;
    case Isa::Avx2:
      return dnnl_cpu_isa_avx2;
    case Isa::Avx512:
      return dnnl_cpu_isa_avx512_core;
  }
  __builtin_unreachable();
}

// Possible only before the first use of oneDNN.
bool limit_isa() {
  const Isa isa = select_isa();
  const dnnl_status_t status = dnnl_set_max_cpu_isa(to_dnnl(isa));
  check<ConfigError>(status == dnnl_success,
                     "matmul: oneDNN cannot be held to {} (status {}): results would depend on "
                     "the CPU; build with FSDPTRAIN_GEMM=eigen",
                     name_of(isa), static_cast<int>(status));
  return true;
}

}  // namespace

void prepare_gemm() {
  static const bool limited = limit_isa();
  (void)limited;
}

bool gemm_kernel(float* c, std::int64_t c_stride, GemmOperand<float> a, GemmOperand<float> b,
                 std::int64_t m, std::int64_t n, std::int64_t k, float beta) {
  // The library must not split what is one tile of ours; the setting belongs to this thread.
  omp_set_num_threads(1);
  return dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f, a.data,
                    a.stride, b.data, b.stride, beta, c, c_stride) == dnnl_success;
}

}  // namespace fsdptrain::kernels::cpu
