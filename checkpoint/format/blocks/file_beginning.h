#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/format/blocks/digest.h"
#include "checkpoint/io/file_system.h"

// What a block file has before its data, as bytes.
namespace fsdptrain::checkpoint {

struct FileBeginning {
  // The header's length, the header, the table.
  std::string text;
  std::uint64_t table_nbytes = 0;
  std::string_view header() const;
  std::string_view table() const;
};

// Reads no more than the file's size allows. DataError naming the file, for a length that cannot
// be.
FileBeginning read_file_beginning(const ReadableFile& file);

// Of a beginning whose digest is not `expected`: "header" or "block table".
std::string_view damaged_part(const FileBeginning& beginning, std::uint64_t file_nbytes,
                              const Digest& expected);

}  // namespace fsdptrain::checkpoint
