#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors/header.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

// Where things lie in a safetensors file: a length, the header, the bytes of the tensors.
namespace fsdptrain::checkpoint {

// A tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
};

// The header's length, little-endian, comes before it.
inline constexpr std::uint64_t kHeaderLengthBytes = 8;

// The tensors' bytes one after the other, in this order. DataError for a name that is there twice
// or that the format keeps for itself, and where the bytes overflow 64 bits.
std::vector<TensorEntry> place_tensors(const std::string& file,
                                       const std::vector<TensorSpec>& tensors);

// What is to be at the beginning of the file: the length and the header.
std::string render_file_beginning(const std::string& file, const SafetensorsHeader& header);

// The length that the first bytes of a file of `file_nbytes` bytes give, checked against it: a
// DataError of its own for each way to be wrong.
std::uint64_t parse_header_length(const std::string& file, std::uint64_t file_nbytes,
                                  std::span<const std::byte, kHeaderLengthBytes> bytes);
// To be asked before they are read: DataError where the file is too short to have a length.
void check_has_length(const std::string& file, std::uint64_t file_nbytes);

}  // namespace fsdptrain::checkpoint
