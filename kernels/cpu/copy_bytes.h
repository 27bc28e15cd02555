#pragma once

#include "kernels/copy_bytes.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void copy_bytes(const Launch& launch, void* to, const void* from, std::int64_t nbytes,
                Caching caching);

}  // namespace fsdptrain::kernels::cpu
