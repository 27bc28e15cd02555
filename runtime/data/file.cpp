#include "runtime/data/file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "runtime/base/error.h"

namespace fsdptrain::data {
namespace {

// Linux moves at most this many bytes in one call.
constexpr std::size_t kLargestTransfer = 0x7ffff000;

std::string_view cure_of(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another place";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f) or choose another file system";
    case EROFS:
    case EACCES:
    case EPERM:
      return "choose a place that this user may use";
    case ENOENT:
    case ENOTDIR:
      return "create the folder first";
    default:
      return "check the device and the path";
  }
}

bool is_file_at(int descriptor, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

struct stat status_of(const File& file) {
  struct stat status {};
  const int result = ::fstat(file.descriptor(), &status);
  check<IoError>(result == 0, "stat {}: {}", file.path().native(), system_reason(errno));
  return status;
}

}  // namespace

std::string system_reason(int error) {
  return std::generic_category().message(error);
}

File::File(int descriptor, std::filesystem::path path)
    : descriptor_(descriptor), path_(std::move(path)) {}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File::~File() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

File File::open_to_read(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = errno;
  check<DataError>(descriptor >= 0 || (error != ENOENT && error != ENOTDIR),
                   "{}: no such file: check the path", path.native());
  check<IoError>(descriptor >= 0, "open {}: {}: {}", path.native(), system_reason(error),
                 cure_of(error));
  return {descriptor, path};
}

File File::create_locked(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  const int error = errno;
  check<IoError>(descriptor >= 0, "create {}: {}: {}", path.native(), system_reason(error),
                 cure_of(error));
  File file(descriptor, path);
  // The second test: another process may have renamed the file between the open and the lock.
  check<IoError>(::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_file_at(descriptor, path),
                 "create {}: another process is writing it: wait for it or choose another name",
                 path.native());
  const int truncated = ::ftruncate(descriptor, 0);
  check<IoError>(truncated == 0, "truncate {}: {}", path.native(), system_reason(errno));
  return file;
}

std::uint64_t File::size() const {
  return static_cast<std::uint64_t>(status_of(*this).st_size);
}

std::size_t File::read(std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t nbytes =
        ::read(descriptor_, out.data() + done, std::min(out.size() - done, kLargestTransfer));
    if (nbytes < 0 && errno == EINTR) {
      continue;
    }
    const int error = errno;
    check<IoError>(nbytes >= 0, "read {}: {}: {}", path_.native(), system_reason(error),
                   cure_of(error));
    if (nbytes == 0) {
      break;
    }
    done += static_cast<std::size_t>(nbytes);
  }
  return done;
}

void File::write_at(std::span<const std::byte> bytes, std::uint64_t offset) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t nbytes =
        ::pwrite(descriptor_, bytes.data() + done, std::min(bytes.size() - done, kLargestTransfer),
                 static_cast<off_t>(offset + done));
    if (nbytes < 0 && errno == EINTR) {
      continue;
    }
    const int error = nbytes < 0 ? errno : ENOSPC;
    check<IoError>(nbytes > 0, "write {}: {} bytes at byte {}: {}: {}", path_.native(),
                   bytes.size() - done, offset + done, system_reason(error), cure_of(error));
    done += static_cast<std::size_t>(nbytes);
  }
}

void File::sync() const {
  const int status = ::fsync(descriptor_);
  const int error = errno;
  check<IoError>(status == 0, "write {}: {} bytes to the device: {}: {}", path_.native(), size(),
                 system_reason(error), cure_of(error));
}

void replace_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  const int status = ::rename(from.c_str(), to.c_str());
  const int error = errno;
  check<IoError>(status == 0, "rename {} to {}: {}: {}", from.native(), to.native(),
                 system_reason(error), cure_of(error));
  const std::filesystem::path folder = to.has_parent_path() ? to.parent_path() : ".";
  File::open_to_read(folder).sync();
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const File file = File::open_to_read(path);
  const struct stat status = status_of(file);
  check<DataError>(S_ISREG(status.st_mode), "{}: must be a regular file", path.native());
  const auto nbytes = static_cast<std::size_t>(status.st_size);
  if (nbytes == 0) {
    return;  // An empty mapping does not exist.
  }
  void* const address = ::mmap(nullptr, nbytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  check<IoError>(address != MAP_FAILED, "map {}: {} bytes: {}", path.native(), nbytes,
                 system_reason(errno));
  bytes_ = {static_cast<const std::byte*>(address), nbytes};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): munmap takes void*.
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace fsdptrain::data
