#include "tools/bench/temporary_folder.h"

#include <cstdlib>
#include <string>
#include <sys/stat.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::tools {

std::filesystem::path temporary_folder() {
  const char* const variable = std::getenv("TMPDIR");
  const std::string path = variable != nullptr && *variable != '\0' ? variable : "/tmp";
  struct stat status {};
  check<PathError>(::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode),
                   "{}: is no folder for temporary files; set TMPDIR to one", in_quotes(path));
  return path;
}

}  // namespace fsdptrain::tools
