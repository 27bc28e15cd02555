#include "runtime/base/mapped_file.h"

#include <cerrno>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>

#include "runtime/base/error.h"

namespace fsdptrain {
namespace {

struct stat status_of(const File& file) {
  struct stat status {};
  const bool is_known = ::fstat(file.descriptor(), &status) == 0;
  check<IoError>(is_known, "{}: reading its status failed: {}", file.path().native(),
                 std::generic_category().message(errno));
  return status;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const File file = File::open_for_reading(path);
  const struct stat status = status_of(file);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  const auto nbytes = static_cast<std::size_t>(status.st_size);
  if (nbytes == 0) {
    return;  // An empty mapping does not exist.
  }
  void* const address = ::mmap(nullptr, nbytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  check<IoError>(address != MAP_FAILED, "{}: mapping {} bytes failed: {}", path.native(), nbytes,
                 std::generic_category().message(errno));
  bytes_ = {static_cast<const std::byte*>(address), nbytes};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): munmap takes void*.
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

void MappedFile::advise_random() const {
  if (bytes_.empty()) {
    return;
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): madvise takes void*.
  const int status = ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_RANDOM);
  check<IoError>(status == 0, "{}: advising the system on {} mapped bytes failed: {}",
                 path().native(), bytes_.size(), std::generic_category().message(errno));
}

File MappedFile::open() const {
  File file = File::open_for_reading(path_);
  const struct stat status = status_of(file);
  check<DataError>(status.st_dev == device_ && status.st_ino == inode_,
                   "{}: was replaced by another file while in use", path_.native());
  return file;
}

void MappedFile::check_size() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) {
    const int error = errno;
    check<IoError>(error == ENOENT || error == ENOTDIR, "{}: reading its size failed: {}",
                   path_.native(), std::generic_category().message(error));
    return;  // Removed: its bytes stay as long as they are mapped.
  }
  if (status.st_dev != device_ || status.st_ino != inode_) {
    return;  // Replaced, likewise.
  }
  const auto nbytes = static_cast<std::uint64_t>(status.st_size);
  check<DataError>(nbytes >= bytes_.size(),
                   "{}: was truncated while in use: {} of its {} bytes are left: write a new file "
                   "and rename it instead",
                   path().native(), nbytes, bytes_.size());
}

}  // namespace fsdptrain
