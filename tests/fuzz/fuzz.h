#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

// A fuzz target reads hostile bytes with one reader. What the reader must do with any bytes:
// return, or throw a fsdptrain::Error. Everything else (a crash, another exception, a sanitizer's
// report) is a find.
namespace fsdptrain::fuzz {

// Defined by each target.
void read_hostile(std::span<const std::byte> bytes);

// The bytes as a regular file, for readers that take a path; gone with this object.
class BytesFile {
 public:
  explicit BytesFile(std::span<const std::byte> bytes);
  BytesFile(const BytesFile&) = delete;
  BytesFile& operator=(const BytesFile&) = delete;
  ~BytesFile();

  std::filesystem::path path() const;

 private:
  int descriptor_;
};

}  // namespace fsdptrain::fuzz
