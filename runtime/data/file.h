#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace fsdptrain::data {

// An open file: a descriptor, closed on destruction, and the path that errors name. DataError
// where the file is missing, IoError with the system's reason where it refuses.
class File {
 public:
  static File open_to_read(const std::filesystem::path& path);
  // Creates the file or empties what a killed process left there. IoError if another process
  // holds it, or if the folder is missing.
  static File create_locked(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::uint64_t size() const;

  // The number of bytes read: fewer than asked for only at the end of the file.
  std::size_t read(std::span<std::byte> out) const;
  // Writes all of `bytes` at `offset`, or throws.
  void write_at(std::span<const std::byte> bytes, std::uint64_t offset) const;
  // Returns when the bytes are on the device.
  void sync() const;

 private:
  File(int descriptor, std::filesystem::path path);

  int descriptor_;
  std::filesystem::path path_;
};

// Moves `from` over `to` in one step and makes the move durable.
void replace_file(const std::filesystem::path& from, const std::filesystem::path& to);

// The whole of a file, mapped read-only for the lifetime of this object.
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

// The system's text for an errno value.
std::string system_reason(int error);

}  // namespace fsdptrain::data
