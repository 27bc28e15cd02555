#include "kernels/functors/activation.h"

#include "kernels/cpu/elementwise_loop.h"

namespace fsdptrain::kernels::cpu {

template void map<kIsa>(const Launch&, Exp, const View&, const View&);
template void map<kIsa>(const Launch&, Log, const View&, const View&);
template void map<kIsa>(const Launch&, Tanh, const View&, const View&);
template void map<kIsa>(const Launch&, TanhBackward, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Erf, const View&, const View&);
template void map<kIsa>(const Launch&, ErfBackward, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Gelu, const View&, const View&);
template void map<kIsa>(const Launch&, GeluBackward, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, GeluTanh, const View&, const View&);
template void map<kIsa>(const Launch&, GeluTanhBackward, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, Silu, const View&, const View&);
template void map<kIsa>(const Launch&, SiluBackward, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, SiluMul, const View&, const View&, const View&);
template void map<kIsa>(const Launch&, SiluMulBackward, const View&, const View&, const View&,
                        const View&);

}  // namespace fsdptrain::kernels::cpu
