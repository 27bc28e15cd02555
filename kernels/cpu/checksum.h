#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/isa.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
std::uint64_t checksum64(const void* data, std::size_t nbytes);

}  // namespace fsdptrain::kernels::cpu
