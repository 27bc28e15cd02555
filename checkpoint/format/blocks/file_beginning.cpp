#include "checkpoint/format/blocks/file_beginning.h"

#include <array>
#include <span>

#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/safetensors/layout.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {
namespace {

// Of a file with this much behind its header, table and data.
std::uint64_t table_nbytes_of(std::uint64_t nbytes) {
  constexpr std::uint64_t kDigest = sizeof(std::uint64_t);
  constexpr std::uint64_t kWithDigest = kBlockBytes + kDigest;
  return (nbytes / kWithDigest + (nbytes % kWithDigest == 0 ? 0 : 1)) * kDigest;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

bool can_be_parsed(std::string_view header, std::uint64_t data_nbytes) {
  try {
    parse_safetensors_header("", header, data_nbytes);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

std::string_view FileBeginning::header() const {
  const std::string_view all = text;
  return all.substr(kHeaderLengthBytes, all.size() - kHeaderLengthBytes - table_nbytes);
}

std::string_view FileBeginning::table() const {
  return std::string_view(text).substr(text.size() - table_nbytes);
}

FileBeginning read_file_beginning(const ReadableFile& file) {
  const std::string path = file.path().string();
  check_has_length(path, file.size());
  std::array<std::byte, kHeaderLengthBytes> length{};
  file.read_at(0, length);
  const std::uint64_t header_end =
      kHeaderLengthBytes + parse_header_length(path, file.size(), length);
  FileBeginning beginning;
  beginning.table_nbytes = table_nbytes_of(file.size() - header_end);
  check<DataError>(beginning.table_nbytes <= file.size() - header_end,
                   "{}: behind its header of {} bytes the file has {} bytes, too few for a block "
                   "table: it was cut short",
                   path, header_end, file.size() - header_end);
  beginning.text.resize(header_end + beginning.table_nbytes);
  file.read_at(0, std::as_writable_bytes(std::span(beginning.text)));
  return beginning;
}

std::string_view damaged_part(const FileBeginning& beginning, std::uint64_t file_nbytes,
                              const Digest& expected) {
  const std::string actual = to_string(digest_of(bytes_of(beginning.table())));
  const std::string member = std::string("\"").append(kBlockTable).append("\":\"");
  const std::size_t place = beginning.text.find(member);
  const std::uint64_t data_nbytes = file_nbytes - (beginning.text.size() - beginning.table_nbytes);
  if (place == std::string::npos || place + member.size() + actual.size() > beginning.text.size() ||
      !can_be_parsed(beginning.header(), data_nbytes)) {
    return "header";
  }
  const std::size_t digits = place + member.size();
  if (beginning.text.compare(digits, actual.size(), actual) == 0) {
    return "header";
  }
  // All is as it should be but for what the header says of the table.
  std::string mended = beginning.text;
  mended.replace(digits, actual.size(), actual);
  return digest_of(bytes_of(mended)) == expected ? "header" : "block table";
}

}  // namespace fsdptrain::checkpoint
