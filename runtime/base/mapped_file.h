#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace fsdptrain {

// The whole of a regular file, mapped read-only for the lifetime of this object. DataError where
// there is none, IoError where the system refuses.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace fsdptrain
