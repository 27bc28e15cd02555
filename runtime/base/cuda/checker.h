#pragma once

#include <cstddef>
#include <string>

// What a checker of memory and order is told about a GPU. Linked into a program by its set: the
// real one has no checker and does nothing, the fake has one.
namespace fsdptrain::cuda {

// As DeviceApi::mark_block.
void mark_block(void* data, std::size_t nbytes, std::size_t block_bytes, void* stream) noexcept;

// What reports call the stream.
void name_stream(void* stream, const std::string& name);

}  // namespace fsdptrain::cuda
