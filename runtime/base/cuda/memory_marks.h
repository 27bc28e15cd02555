#pragma once

#include <cstddef>

namespace fsdptrain::cuda {

// DeviceApi::mark_block for blocks on a GPU. Linked into a program by its set: the real one does
// nothing, the fake tells its checker of memory.
void mark_block(void* data, std::size_t nbytes, std::size_t block_bytes, void* stream) noexcept;

}  // namespace fsdptrain::cuda
