#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace fsdptrain {

// The system refuses a path for what it is, before anything was read or written: nothing there, no
// folder, links in a circle, too long a name, no right. The user must give another one, or change
// what is there; all else, such as a full disk or a fault of the device, is a plain IoError.
class PathError : public IoError {
 public:
  using IoError::IoError;
};

// "<path>: <what> failed: <the system's reason>; <cure>", for a path that could not be opened, made
// or looked at: PathError where `error`, an errno, says that the path is at fault, else IoError.
[[noreturn]] void fail_path(const std::filesystem::path& path, std::string_view what, int error);

// The folders of this path that are missing, the outer first. PathError where something is in their
// way: a file, a link to nothing or in a circle, a folder that may not be entered.
std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& path);
// Makes them and returns them; after an error none of them is left.
std::vector<std::filesystem::path> make_folders(const std::filesystem::path& path);

// An open file, closed with its owner. What the system refuses is an IoError that names the
// path, the bytes, the system's reason and, where there is one, the cure.
class File {
 public:
  // A regular file, or a link to one; DataError if there is nothing or something else, PathError
  // if the path is refused in another way.
  static File open_for_reading(const std::filesystem::path& path);
  // The same to read and to write what is there.
  static File open_for_update(const std::filesystem::path& path);
  // Nothing if the path exists already; PathError. Errors name `called` instead, if it is given.
  static std::optional<File> create(const std::filesystem::path& path,
                                    const std::filesystem::path& called = {});

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::uint64_t size() const;

  // Fills `out` from `offset` on; the bytes read are fewer only where the file ends.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const;
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Has the system begin to bring written bytes to the device, so that sync() waits less. A hint:
  // whether it is taken changes no result.
  void begin_sync(std::uint64_t offset, std::uint64_t nbytes);
  // Returns when the bytes have reached the device.
  void sync();
  // Before the owner's end; of a closed file there is only path().
  void close();

 private:
  File(std::filesystem::path path, std::filesystem::path called, int descriptor);
  static File open_existing(const std::filesystem::path& path, int mode, std::string_view what);

  std::filesystem::path path_;
  // In errors.
  std::filesystem::path called_;
  int descriptor_;
};

// A new file that gets its name only when it is whole. It is written under a temporary name in
// the same folder; commit() puts it in the place of `path`, and a destructor before that removes
// it. A process that dies leaves at most the temporary file, which the next AtomicFile of that path
// removes. Errors name `path`.
class AtomicFile {
 public:
  // PathError if no file can be made there.
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  const std::filesystem::path& path() const { return path_; }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);

  void begin_sync(std::uint64_t offset, std::uint64_t nbytes) {
    temporary_.begin_sync(offset, nbytes);
  }
  // Returns when the bytes have reached the device, and gives the descriptor back: of several files
  // that belong together, none takes its name before all are written. What is left is commit() or
  // the destructor. The lock by which writers in other containers know that the temporary file is
  // in use ends here.
  void close();

  // Returns when both the bytes and the name have reached the device. A file that was at `path`
  // is replaced, not changed: whoever has it open keeps reading the old bytes.
  void commit();
  // Whether the file has its name: also where commit() failed behind that.
  bool is_committed() const { return committed_; }

 private:
  std::filesystem::path path_;
  File temporary_;
  bool closed_ = false;
  bool committed_ = false;
};

}  // namespace fsdptrain
