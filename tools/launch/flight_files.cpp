#include "tools/launch/flight_files.h"

#include <cerrno>
#include <span>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "comm/flight/format.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace fsdptrain::tools {

void write_ring(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  const bool is_known = ::fstat(descriptor, &status) == 0;
  check<IoError>(is_known, "launch: a flight ring cannot be read: {}",
                 std::generic_category().message(errno));
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  comm::flight::read_at(descriptor, "launch: a flight ring", 0,
                        std::as_writable_bytes(std::span(bytes)));
  write_text(bytes, path);
}

void write_text(std::string_view text, const std::filesystem::path& path) {
  std::optional<File> file = File::create(path);
  check<IoError>(file.has_value(), "{}: exists already", path.native());
  file->write_at(0, std::as_bytes(std::span(text)));
}

}  // namespace fsdptrain::tools
