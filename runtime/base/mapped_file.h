#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <sys/types.h>

#include "runtime/base/file.h"

namespace fsdptrain {

// The whole of a regular file, mapped read-only for the lifetime of this object, which keeps no
// descriptor: a set of files may have more of them than a process may open. DataError where there
// is none, IoError where the system refuses.
//
// Where another process shortens the file, reading the bytes that are gone ends this one by
// SIGBUS. check_size() before each use catches all but a cut between the two, and one under another
// name than path(); a signal handler could catch those too, but not go on. Who replaces or removes
// the file changes nothing here.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::filesystem::path& path() const { return path_; }
  // The file once more, to be read in other ways; DataError if path() is another one by now.
  File open() const;
  std::span<const std::byte> bytes() const { return bytes_; }
  // Places are read in no order: what is read brings no other pages with it.
  void advise_random() const;
  // DataError if the file is still at path() and has become shorter than bytes().
  void check_size() const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  // Which file it is: the mapping keeps the number from being given to another.
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace fsdptrain
