#pragma once

#include "kernels/softmax.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void softmax(const Launch& launch, const View& y, const View& x, const SoftmaxShape& shape,
             SoftmaxForm form);
template <Isa isa>
void softmax_backward(const Launch& launch, const View& dx, const View& dy, const View& y,
                      const SoftmaxShape& shape, SoftmaxForm form);

}  // namespace fsdptrain::kernels::cpu
