#include "runtime/base/error.h"
#include "tools/bench/library_gemm.h"

namespace fsdptrain::tools {

bool has_library_gemm() {
  return false;
}

void library_gemm(int, const GemmShape&, const float*, const float*, float, float*) {
  fail("bench: this build has no oneDNN: configure with FSDPTRAIN_GEMM=dnnl");
}

}  // namespace fsdptrain::tools
