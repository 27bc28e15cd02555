#include "runtime/base/file.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fsdptrain {
namespace {

// What the user can do about `error`, as the end of a sentence.
const char* cure_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free space there, or write to another disk";
    case EFBIG:
      return "; raise the limit of file sizes (ulimit -f), or write to another disk";
    case EACCES:
    case EPERM:
      return "; give this user the right, or another path";
    case EROFS:
      return "; mount it for writing, or choose another folder";
    case ENOENT:
      return "; create the folder first";
    case ENOTDIR:
    case EEXIST:
      return "; what is there is no folder: move it away, or give another path";
    case EISDIR:
      return "; give the path of a file";
    case ELOOP:
      return "; remove the link, or give the path that it should lead to";
    case ENAMETOOLONG:
      return "; give a shorter one";
    case EIO:
      return "; the device reports a fault, see the kernel's log";
    case EMFILE:
      return "; raise the limit of open files (ulimit -n)";
    default:
      return "";
  }
}

// Whether the user must change the path, rather than the machine its state.
bool is_wrong_path(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EEXIST:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENXIO:
    case ENODEV:
      return true;
    default:
      return false;
  }
}

std::string reason_of(int error) {
  return std::generic_category().message(error) + cure_of(error);
}

// The process that wrote `name`, if it is a temporary name of `target`: TARGET.tmp-PID-NUMBER.
std::optional<pid_t> writer_of(std::string_view name, const std::string& target) {
  const std::string prefix = target + ".tmp-";
  if (!name.starts_with(prefix)) {
    return std::nullopt;
  }
  name.remove_prefix(prefix.size());
  const char* const end = name.data() + name.size();
  pid_t pid = 0;
  std::uint64_t number = 0;
  const auto [dash, bad_pid] = std::from_chars(name.data(), end, pid);
  if (bad_pid != std::errc() || pid <= 0 || dash == end || *dash != '-') {
    return std::nullopt;
  }
  const auto [rest, bad_number] = std::from_chars(dash + 1, end, number);
  return bad_number == std::errc() && rest == end ? std::optional(pid) : std::nullopt;
}

// No process has the file open for writing under a lock. Numbers of processes do not tell it alone:
// those of another container or host mean nothing here.
bool is_unlocked(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) {
    return false;
  }
  const bool unlocked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  ::close(descriptor);
  return unlocked;
}

// What writers of `path` that were killed have left. What cannot be looked at or removed stays.
void remove_leftovers(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::optional<pid_t> pid =
        writer_of(entry->path().filename().native(), path.filename().native());
    std::error_code unknown;
    if (pid && fs::is_regular_file(entry->symlink_status(unknown)) && ::kill(*pid, 0) != 0 &&
        errno == ESRCH && is_unlocked(entry->path())) {
      ::unlink(entry->path().c_str());
    }
  }
}

// A file that did not exist before: names in use, by another writer of this process or left by a
// dead one, are passed over.
File create_temporary(const std::filesystem::path& path) {
  std::error_code unreadable;  // creating the file says why
  check<PathError>(!std::filesystem::is_directory(path, unreadable),
                   "{}: cannot write a file there: it is a folder: give the path of a file",
                   path.string());
  check<PathError>(!std::filesystem::exists(path, unreadable) ||
                       std::filesystem::is_regular_file(path, unreadable),
                   "{}: cannot write a file there: it is a device, a pipe or a socket",
                   path.string());
  remove_leftovers(path);
  for (std::uint64_t number = 0;; ++number) {
    std::filesystem::path temporary = path;
    temporary += fmt::format(".tmp-{}-{}", ::getpid(), number);
    if (std::optional<File> file = File::create(temporary, path)) {
      // Says that it is in use; where the file system knows no locks, leftovers stay.
      ::flock(file->descriptor(), LOCK_EX | LOCK_NB);
      return std::move(*file);
    }
  }
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check<IoError>(descriptor >= 0, "{}: opening the folder failed: {}", folder.string(),
                 reason_of(errno));
  const int status = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  check<IoError>(status == 0, "{}: writing the folder to the device failed: {}", folder.string(),
                 reason_of(error));
}

// Of what the path leads to, or of a link itself; an errno, 0 where it is known.
int status_of(const std::filesystem::path& path, struct stat& status) {
  return ::stat(path.c_str(), &status) == 0 ? 0 : errno;
}

bool is_link(const std::filesystem::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

void remove_folders(const std::vector<std::filesystem::path>& folders) {
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    ::rmdir(folder->c_str());
  }
}

}  // namespace

void fail_path(const std::filesystem::path& path, std::string_view what, int error) {
  const std::string reason = error == ENOENT && is_link(path)
                                 ? "it is a link to nothing; remove the link, or make what it "
                                   "should lead to"
                                 : reason_of(error);
  check<PathError>(!is_wrong_path(error), "{}: {} failed: {}", path.string(), what, reason);
  fail<IoError>("{}: {} failed: {}", path.string(), what, reason);
}

std::vector<std::filesystem::path> missing_folders(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> missing;
  for (std::filesystem::path folder = path; !folder.empty(); folder = folder.parent_path()) {
    struct stat status {};
    const int error = status_of(folder, status);
    if (error == ENOENT && !is_link(folder)) {
      missing.push_back(folder);
      continue;
    }
    if (error != 0 || !S_ISDIR(status.st_mode)) {
      fail_path(folder, "creating the folder", error != 0 ? error : ENOTDIR);
    }
    break;
  }
  return {missing.rbegin(), missing.rend()};
}

std::vector<std::filesystem::path> make_folders(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> made;
  for (const std::filesystem::path& folder : missing_folders(path)) {
    if (::mkdir(folder.c_str(), 0777) == 0) {
      made.push_back(folder);
      continue;
    }
    const int error = errno;
    struct stat status {};
    // Made by another process meanwhile, or named twice, as by "runs/" and "runs".
    if (error != EEXIST || status_of(folder, status) != 0 || !S_ISDIR(status.st_mode)) {
      remove_folders(made);
      fail_path(folder, "creating the folder", error);
    }
  }
  return made;
}

File::File(std::filesystem::path path, std::filesystem::path called, int descriptor)
    : path_(std::move(path)), called_(std::move(called)), descriptor_(descriptor) {}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      called_(std::move(other.called_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

File::~File() {
  close();
}

void File::close() {
  if (descriptor_ >= 0) {
    // A failure has nothing to lose: sync() has reported what did not reach the device.
    ::close(std::exchange(descriptor_, -1));
  }
}

File File::open_for_reading(const std::filesystem::path& path) {
  return open_existing(path, O_RDONLY, "opening for reading");
}

File File::open_for_update(const std::filesystem::path& path) {
  return open_existing(path, O_RDWR, "opening for writing");
}

File File::open_existing(const std::filesystem::path& path, int mode, std::string_view what) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int descriptor = ::open(path.c_str(), mode | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int error = errno;
    check<DataError>(error != ENOENT && error != ENOTDIR, "{}: there is no such file{}",
                     path.string(), is_link(path) ? ": it is a link to nothing" : "");
    fail_path(path, what, error);
  }
  File file(path, path, descriptor);
  struct stat status {};
  const bool is_known = ::fstat(descriptor, &status) == 0;
  check<IoError>(is_known, "{}: reading its size failed: {}", path.string(), reason_of(errno));
  check<DataError>(!S_ISDIR(status.st_mode), "{}: must be a file, got a folder", path.string());
  check<DataError>(S_ISREG(status.st_mode), "{}: must be a regular file, got a pipe or device",
                   path.string());
  return file;
}

std::optional<File> File::create(const std::filesystem::path& path,
                                 const std::filesystem::path& called) {
  const std::filesystem::path& name = called.empty() ? path : called;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    const int error = errno;
    if (error != EEXIST) {
      fail_path(name, "creating the file", error);
    }
    return std::nullopt;
  }
  return File(path, name, descriptor);
}

std::uint64_t File::size() const {
  struct stat status {};
  const bool is_known = ::fstat(descriptor_, &status) == 0;
  check<IoError>(is_known, "{}: reading its size failed: {}", called_.string(), reason_of(errno));
  return static_cast<std::uint64_t>(status.st_size);
}

std::size_t File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done,
                                  static_cast<off_t>(offset + done));
    if (count == 0) {
      break;
    }
    if (count < 0) {
      const int error = errno;
      check<IoError>(error == EINTR, "{}: reading {} bytes at offset {} failed: {}",
                     called_.string(), out.size() - done, offset + done, reason_of(error));
      continue;
    }
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void File::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(offset + done));
    if (count < 0) {
      const int error = errno;
      check<IoError>(error == EINTR, "{}: writing {} bytes at offset {} failed: {}",
                     called_.string(), bytes.size() - done, offset + done, reason_of(error));
      continue;
    }
    done += static_cast<std::size_t>(count);
  }
}

void File::begin_sync(std::uint64_t offset, std::uint64_t nbytes) {
  // What it cannot do is left to sync(), which reports.
  ::sync_file_range(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(nbytes),
                    SYNC_FILE_RANGE_WRITE);
}

void File::sync() {
  if (::fsync(descriptor_) != 0) {
    const int error = errno;
    fail<IoError>("{}: writing {} bytes to the device failed: {}", called_.string(), size(),
                  reason_of(error));
  }
}

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(create_temporary(path_)) {}

AtomicFile::~AtomicFile() {
  if (!committed_ && ::unlink(temporary_.path().c_str()) != 0) {
    log_warning("{}: removing the unfinished file failed: {}", temporary_.path().string(),
                reason_of(errno));
  }
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  temporary_.write_at(offset, bytes);
}

void AtomicFile::close() {
  temporary_.sync();
  temporary_.close();
  closed_ = true;
}

void AtomicFile::commit() {
  check(!committed_, "{}: a file is committed once", path_.string());
  if (!closed_) {
    close();
  }
  // A statement of its own: the arguments of a check are evaluated in any order.
  const bool is_renamed = std::rename(temporary_.path().c_str(), path_.c_str()) == 0;
  check<IoError>(is_renamed, "{}: giving the finished file its name failed: {}", path_.string(),
                 reason_of(errno));
  committed_ = true;
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

}  // namespace fsdptrain
