#include "tools/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "runtime/base/error.h"

namespace fsdptrain::tools {
namespace {

void check_written(bool written) {
  const int error = errno;
  check<IoError>(written, "standard output cannot be written: {}",
                 error == 0 ? "an earlier write failed" : std::generic_category().message(error));
}

}  // namespace

void print_now(std::string_view text) {
  errno = 0;
  check_written(std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                std::fflush(stdout) == 0);
}

void finish_standard_output() {
  errno = 0;
  check_written(std::fflush(stdout) == 0 && std::ferror(stdout) == 0);
}

void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) {
      // The wrong way round on purpose; the lowest free number is this one.
      ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

}  // namespace fsdptrain::tools
