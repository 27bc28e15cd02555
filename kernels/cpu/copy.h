#pragma once

#include "kernels/copy.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void copy(const Launch& launch, const View& out, const View& in);
template <Isa isa>
void accumulate(const Launch& launch, const View& out, const View& in);
template <Isa isa>
void fill(const Launch& launch, const View& out, double value);

}  // namespace fsdptrain::kernels::cpu
