#include "kernels/cuda/elementwise.cuh"
#include "kernels/functors/activation.h"

namespace fsdptrain::kernels::cuda {

template void map(void*, Exp, const View&, const View&);
template void map(void*, Log, const View&, const View&);
template void map(void*, Tanh, const View&, const View&);
template void map(void*, TanhBackward, const View&, const View&, const View&);
template void map(void*, Erf, const View&, const View&);
template void map(void*, ErfBackward, const View&, const View&, const View&);
template void map(void*, Gelu, const View&, const View&);
template void map(void*, GeluBackward, const View&, const View&, const View&);
template void map(void*, GeluTanh, const View&, const View&);
template void map(void*, GeluTanhBackward, const View&, const View&, const View&);
template void map(void*, Silu, const View&, const View&);
template void map(void*, SiluBackward, const View&, const View&, const View&);
template void map(void*, SiluMul, const View&, const View&, const View&);
template void map(void*, SiluMulBackward, const View&, const View&, const View&, const View&);

}  // namespace fsdptrain::kernels::cuda
