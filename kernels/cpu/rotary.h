#pragma once

#include "kernels/rotary.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void rotary(const Launch& launch, const Rotary& args);

}  // namespace fsdptrain::kernels::cpu
