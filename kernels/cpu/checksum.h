#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/isa.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
std::uint64_t checksum64(const void* data, std::size_t nbytes);

// In parts: `state` is that of Checksum64.
template <Isa isa>
void begin_checksum64(void* state);
template <Isa isa>
void append_checksum64(void* state, const void* data, std::size_t nbytes);
template <Isa isa>
std::uint64_t value_of_checksum64(const void* state);

}  // namespace fsdptrain::kernels::cpu
