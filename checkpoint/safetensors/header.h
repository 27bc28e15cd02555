#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

// The header of a safetensors file: JSON that names the tensors and where their bytes lie.
namespace fsdptrain::checkpoint {

struct TensorEntry {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
  // The bytes, row-major and little-endian; offsets count from the first byte after the header.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t nbytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  // In the order of their bytes, which follow each other without a gap.
  std::vector<TensorEntry> entries;
};

// The format's own limit on the length of a header.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// The member of the header that is no tensor.
inline constexpr std::string_view kMetadataKey = "__metadata__";

// Parses the header of a file with `data_nbytes` bytes after the header. Every way a header can
// be wrong is a DataError of its own, which names `file` and the values.
SafetensorsHeader parse_safetensors_header(const std::string& file, std::string_view text,
                                           std::uint64_t data_nbytes);

// The header as text, padded with spaces so that the data begins at a multiple of 8. DataError if
// a string is not valid UTF-8.
std::string render_safetensors_header(const std::string& file, const SafetensorsHeader& header);

}  // namespace fsdptrain::checkpoint
