#include "checkpoint/safetensors/layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::vector<TensorEntry> place_tensors(const std::string& file,
                                       const std::vector<TensorSpec>& tensors) {
  std::vector<TensorEntry> entries;
  entries.reserve(tensors.size());
  std::unordered_set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    check<DataError>(names.insert(tensor.name).second, "{}: two tensors are named {}", file,
                     shown(tensor.name));
    check<DataError>(tensor.name != kMetadataKey, "{}: {} cannot be a tensor's name", file,
                     kMetadataKey);
    TensorEntry entry{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape};
    entry.begin = offset;
    std::uint64_t nbytes = 0;
    const bool overflows = __builtin_mul_overflow(static_cast<std::uint64_t>(entry.shape.numel()),
                                                  size_of(entry.dtype), &nbytes) ||
                           __builtin_add_overflow(offset, nbytes, &offset);
    check<DataError>(!overflows, "{}: the bytes up to tensor {} overflow 64 bits", file,
                     shown(entry.name));
    entry.end = offset;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string render_file_beginning(const std::string& file, const SafetensorsHeader& header) {
  const std::string text = render_safetensors_header(file, header);
  const auto length =
      std::bit_cast<std::array<char, kHeaderLengthBytes>>(std::uint64_t{text.size()});
  return std::string(length.begin(), length.end()) + text;
}

void check_has_length(const std::string& file, std::uint64_t file_nbytes) {
  check<DataError>(file_nbytes >= kHeaderLengthBytes,
                   "{}: a safetensors file begins with an 8-byte length, got {} bytes in all", file,
                   file_nbytes);
}

std::uint64_t parse_header_length(const std::string& file, std::uint64_t file_nbytes,
                                  std::span<const std::byte, kHeaderLengthBytes> bytes) {
  std::array<std::byte, kHeaderLengthBytes> copy{};
  std::ranges::copy(bytes, copy.begin());
  const auto length = std::bit_cast<std::uint64_t>(copy);
  check<DataError>(length > 0, "{}: the header is empty", file);
  check<DataError>(length <= kMaxHeaderBytes, "{}: a header has at most {} bytes, got {}", file,
                   kMaxHeaderBytes, length);
  check<DataError>(length <= file_nbytes - kHeaderLengthBytes,
                   "{}: the header has {} bytes, but the file has {} bytes after the length: it is "
                   "cut short or no safetensors file",
                   file, length, file_nbytes - kHeaderLengthBytes);
  return length;
}

}  // namespace fsdptrain::checkpoint
