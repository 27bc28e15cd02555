#pragma once

#include "kernels/cross_entropy.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void cross_entropy_forward(const Launch& launch, const CrossEntropyForward& args);
template <Isa isa>
void cross_entropy_backward(const Launch& launch, const CrossEntropyBackward& args);
template <Isa isa>
void cross_entropy_forward_backward(const Launch& launch, const CrossEntropyForwardBackward& args);

}  // namespace fsdptrain::kernels::cpu
