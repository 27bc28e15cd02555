#include "kernels/functors/arithmetic.h"

#include "kernels/cpu/elementwise_loop.h"

namespace fsdptrain::kernels::cpu {

template void map<kIsa>(const Launch&, Add, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Subtract, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Multiply, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Divide, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Maximum, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Minimum, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, AddScaled, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Lerp, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Negate, const View&, const View&);
template void map<kIsa>(const Launch&, Affine, const View&, const View&);
template void map<kIsa>(const Launch&, Square, const View&, const View&);
template void map<kIsa>(const Launch&, Sqrt, const View&, const View&);
template void map<kIsa>(const Launch&, SqrtBackward, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Rsqrt, const View&, const View&);
template void map<kIsa>(const Launch&, RsqrtBackward, const View&, const View&, const View&);

template void map<kIsa>(const Launch&, Equal, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, NotEqual, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Less, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, LessEqual, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Greater, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, GreaterEqual, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Where, const View&, const View&, const View&, const View&);

}  // namespace fsdptrain::kernels::cpu
