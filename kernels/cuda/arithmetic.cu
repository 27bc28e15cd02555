#include "kernels/cuda/elementwise.cuh"
#include "kernels/functors/arithmetic.h"

namespace fsdptrain::kernels::cuda {

template void map(void*, Add, const View&, const View&, const View&);
template void map(void*, Subtract, const View&, const View&, const View&);
template void map(void*, Multiply, const View&, const View&, const View&);
template void map(void*, Divide, const View&, const View&, const View&);
template void map(void*, Maximum, const View&, const View&, const View&);
template void map(void*, Minimum, const View&, const View&, const View&);
template void map(void*, AddScaled, const View&, const View&, const View&);
template void map(void*, Lerp, const View&, const View&, const View&);
template void map(void*, Negate, const View&, const View&);
template void map(void*, Affine, const View&, const View&);
template void map(void*, Square, const View&, const View&);
template void map(void*, Sqrt, const View&, const View&);
template void map(void*, SqrtBackward, const View&, const View&, const View&);
template void map(void*, Rsqrt, const View&, const View&);
template void map(void*, RsqrtBackward, const View&, const View&, const View&);

template void map(void*, Equal, const View&, const View&, const View&);
template void map(void*, NotEqual, const View&, const View&, const View&);
template void map(void*, Less, const View&, const View&, const View&);
template void map(void*, LessEqual, const View&, const View&, const View&);
template void map(void*, Greater, const View&, const View&, const View&);
template void map(void*, GreaterEqual, const View&, const View&, const View&);
template void map(void*, Where, const View&, const View&, const View&, const View&);

}  // namespace fsdptrain::kernels::cuda
