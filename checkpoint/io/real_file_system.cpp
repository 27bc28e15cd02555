#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "checkpoint/io/file_system.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace fsdptrain::checkpoint {
namespace {

namespace fs = std::filesystem;

// Of one call: the system takes about 2 GiB at most.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

// Calls again what a signal has interrupted.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

void check_call(bool succeeded, const fs::path& path, std::string_view what) {
  if (!succeeded) {
    fail_path(path, what, errno);
  }
}

// An open file, closed at the latest with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() { close(); }

  int number() const { return number_; }
  // False where the system could not write. Never again: the descriptor is gone in any case.
  bool close() { return number_ < 0 || ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

class RealReadableFile final : public ReadableFile {
 public:
  RealReadableFile(fs::path path, Descriptor descriptor, std::uint64_t size)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), size_(size) {}

  const fs::path& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }

 protected:
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    const ssize_t count = uninterrupted([&] {
      return ::pread(descriptor_.number(), out.data(), std::min(out.size(), kMaxTransfer),
                     static_cast<off_t>(offset));
    });
    if (count < 0) {
      const int error = errno;
      fail_path(path_, fmt::format("reading {} bytes at offset {}", out.size(), offset), error);
    }
    return static_cast<std::size_t>(count);
  }

 private:
  fs::path path_;
  Descriptor descriptor_;
  std::uint64_t size_;
};

class RealWritableFile final : public WritableFile {
 public:
  RealWritableFile(fs::path path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  const fs::path& path() const override { return path_; }

  void begin_sync(std::uint64_t offset, std::uint64_t nbytes) override {
    // What it cannot do is left to sync(), which reports.
    ::sync_file_range(descriptor_.number(), static_cast<off_t>(offset), static_cast<off_t>(nbytes),
                      SYNC_FILE_RANGE_WRITE);
  }

  void sync() override {
    const int status = uninterrupted([&] { return ::fsync(descriptor_.number()); });
    check_call(status == 0, path_, "writing the file to the device");
  }

  void close() override { check_call(descriptor_.close(), path_, "closing the written file"); }

 protected:
  std::size_t write_some(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const ssize_t count = uninterrupted([&] {
      return ::pwrite(descriptor_.number(), bytes.data(), std::min(bytes.size(), kMaxTransfer),
                      static_cast<off_t>(offset));
    });
    if (count <= 0) {
      fail_write(offset, bytes.size(), count < 0 ? errno : EIO);
    }
    return static_cast<std::size_t>(count);
  }

 private:
  [[noreturn]] void fail_write(std::uint64_t offset, std::size_t nbytes, int error) const {
    std::string space;
    if (error == ENOSPC || error == EDQUOT) {
      struct statvfs facts {};
      const bool known = ::fstatvfs(descriptor_.number(), &facts) == 0;
      const auto free = static_cast<std::uint64_t>(facts.f_bavail) * facts.f_frsize;
      space = fmt::format(" ({} bytes are free there)", known ? free : 0);
    }
    fail_path(path_, fmt::format("writing {} bytes at offset {}{}", nbytes, offset, space), error);
  }

  fs::path path_;
  Descriptor descriptor_;
};

EntryKind kind_of_type(fs::file_type type) {
  return type == fs::file_type::regular     ? EntryKind::File
         : type == fs::file_type::directory ? EntryKind::Folder
                                            : EntryKind::Other;
}

// Returns errno, 0 for success. rename() alone would replace an empty folder; RENAME_NOREPLACE
// keeps the system from it. A file system that does not know the flag is asked first whether the
// name is free: there, an empty folder that another process makes between the two calls is
// replaced.
int rename_folder(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return 0;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    return errno;
  }
  struct stat status {};
  if (::lstat(to.c_str(), &status) == 0) {
    return EEXIST;
  }
  return errno == ENOENT && std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

class RealFileSystem final : public FileSystem {
 public:
  std::unique_ptr<ReadableFile> open(const fs::path& path) override;
  std::unique_ptr<WritableFile> create(const fs::path& path) override;
  bool make_folder(const fs::path& path) override;
  std::vector<FolderEntry> list(const fs::path& path) override;
  std::optional<EntryKind> kind_of(const fs::path& path) override;
  void rename(const fs::path& from, const fs::path& to) override;
  void sync_folder(const fs::path& path) override;

  void remove_file(const fs::path& path) override {
    check_call(::unlink(path.c_str()) == 0, path, "removing the file");
  }
  void remove_folder(const fs::path& path) override {
    check_call(::rmdir(path.c_str()) == 0, path, "removing the folder");
  }
};

std::unique_ptr<ReadableFile> RealFileSystem::open(const fs::path& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  Descriptor descriptor(uninterrupted(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW); }));
  const int error = errno;
  if (descriptor.number() < 0) {
    check<DataError>(error != ENOENT && error != ENOTDIR, "{}: there is no such file",
                     path.string());
    check<DataError>(error != ELOOP || kind_of(path) != EntryKind::Other,
                     "{}: must be a regular file, got a link", path.string());
    fail_path(path, "opening for reading", error);
  }
  struct stat status {};
  check_call(::fstat(descriptor.number(), &status) == 0, path, "reading its size");
  check<DataError>(S_ISREG(status.st_mode), "{}: must be a regular file, got {}", path.string(),
                   S_ISDIR(status.st_mode) ? "a folder" : "a pipe or device");
  return std::make_unique<RealReadableFile>(path, std::move(descriptor),
                                            static_cast<std::uint64_t>(status.st_size));
}

std::unique_ptr<WritableFile> RealFileSystem::create(const fs::path& path) {
  Descriptor descriptor(uninterrupted([&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  }));
  const int error = errno;
  check<PathError>(descriptor.number() >= 0 || error != EEXIST,
                   "{}: creating the file failed: there is something of this name already",
                   path.string());
  if (descriptor.number() < 0) {
    fail_path(path, "creating the file", error);
  }
  return std::make_unique<RealWritableFile>(path, std::move(descriptor));
}

bool RealFileSystem::make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0777) == 0) {
    return true;
  }
  check_call(errno == EEXIST, path, "creating the folder");
  return false;
}

std::vector<FolderEntry> RealFileSystem::list(const fs::path& path) {
  std::error_code error;
  fs::directory_iterator entry(path, error);
  check<DataError>(error.value() != ENOENT && error.value() != ENOTDIR,
                   "{}: there is no such folder", path.string());
  std::vector<FolderEntry> entries;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    const fs::file_type type = entry->symlink_status(unknown).type();
    // Gone since it was listed.
    if (type != fs::file_type::not_found) {
      entries.push_back({.name = entry->path().filename().string(), .kind = kind_of_type(type)});
    }
  }
  if (error) {
    fail_path(path, "listing the folder", error.value());
  }
  std::ranges::sort(entries, {}, &FolderEntry::name);
  return entries;
}

std::optional<EntryKind> RealFileSystem::kind_of(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found) {
    return std::nullopt;
  }
  if (error) {
    fail_path(path, "looking at it", error.value());
  }
  return kind_of_type(type);
}

void RealFileSystem::rename(const fs::path& from, const fs::path& to) {
  const std::string what = fmt::format("giving {} this name", from.string());
  if (kind_of(from) != EntryKind::Folder) {
    check_call(std::rename(from.c_str(), to.c_str()) == 0, to, what);
    return;
  }
  const int error = rename_folder(from, to);
  check<IoError>(error != EEXIST && error != ENOTEMPTY,
                 "{}: {} failed: there is something of this name already", to.string(), what);
  if (error != 0) {
    fail_path(to, what, error);
  }
}

void RealFileSystem::sync_folder(const fs::path& path) {
  const Descriptor descriptor(
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  check_call(descriptor.number() >= 0, path, "opening the folder");
  const int status = uninterrupted([&] { return ::fsync(descriptor.number()); });
  check_call(status == 0, path, "writing the folder to the device");
}

}  // namespace

std::unique_ptr<FileSystem> make_real_file_system() {
  return std::make_unique<RealFileSystem>();
}

}  // namespace fsdptrain::checkpoint
