#pragma once

#include "kernels/gather.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void gather(const Launch& launch, const View& out, const View& in, const View& indices,
            const GatherShape& shape);
template <Isa isa>
void scatter_add(const Launch& launch, const View& out, const View& indices, const View& in,
                 const GatherShape& shape);

}  // namespace fsdptrain::kernels::cpu
