#include "tools/launch/job_folder.h"

#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/base/file.h"

namespace fsdptrain::tools {

JobFolder make_job_folder(const std::optional<std::filesystem::path>& log_dir) {
  const std::string name =
      fmt::format("{:%Y%m%d-%H%M%S}-{}", fmt::localtime(std::time(nullptr)), ::getpid());
  if (!log_dir) {
    return {name, {}};
  }
  // Of a worker, wherever it goes.
  const std::filesystem::path base = std::filesystem::absolute(*log_dir);
  std::string job_id = name;
  for (int i = 2; make_folders(base / job_id).empty(); ++i) {
    job_id = fmt::format("{}-{}", name, i);
  }
  return {job_id, base / job_id};
}

}  // namespace fsdptrain::tools
