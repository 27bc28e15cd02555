#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "runtime/base/file.h"

namespace fsdptrain {

// The whole of a regular file, mapped read-only for the lifetime of this object. DataError where
// there is none, IoError where the system refuses.
//
// Where another process shortens the file, reading the bytes that are gone ends this one by
// SIGBUS. check_size() before each use catches all but a cut between the two; a signal handler
// could catch that too, but not go on. Who replaces the file by renaming changes nothing here.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::filesystem::path& path() const { return file_.path(); }
  const File& file() const { return file_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Places are read in no order: what is read brings no other pages with it.
  void advise_random() const;
  // DataError if the file has become shorter than bytes().
  void check_size() const;

 private:
  File file_;
  std::span<const std::byte> bytes_;
};

}  // namespace fsdptrain
