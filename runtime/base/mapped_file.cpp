#include "runtime/base/mapped_file.h"

#include <cerrno>
#include <sys/mman.h>
#include <system_error>

#include "runtime/base/error.h"

namespace fsdptrain {

MappedFile::MappedFile(const std::filesystem::path& path) : file_(File::open_for_reading(path)) {
  const auto nbytes = static_cast<std::size_t>(file_.size());
  if (nbytes == 0) {
    return;  // An empty mapping does not exist.
  }
  void* const address = ::mmap(nullptr, nbytes, PROT_READ, MAP_SHARED, file_.descriptor(), 0);
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

void MappedFile::check_size() const {
  const std::uint64_t nbytes = file_.size();
  check<DataError>(nbytes >= bytes_.size(),
                   "{}: was truncated while in use: {} of its {} bytes are left: write a new file "
                   "and rename it instead",
                   path().native(), nbytes, bytes_.size());
}

}  // namespace fsdptrain
