#include "kernels/cuda/simt.h"

namespace fsdptrain::kernels::cuda {

constinit thread_local Index3 threadIdx{0, 0, 0};  // NOLINT(*): CUDA's own variables
constinit thread_local Index3 blockIdx{0, 0, 0};   // NOLINT(*): as above
constinit thread_local Index3 blockDim{1, 1, 1};   // NOLINT(*): as above

}  // namespace fsdptrain::kernels::cuda
