#pragma once

#include "kernels/dropout.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void dropout(const Launch& launch, const View& out, const View& in, const DropoutMask& mask);

}  // namespace fsdptrain::kernels::cpu
