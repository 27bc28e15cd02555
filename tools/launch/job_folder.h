#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace fsdptrain::tools {

// What a job is called, and where its logs are.
struct JobFolder {
  // Tells jobs of one host apart; the name of the folder.
  std::string job_id;
  // Empty: there are no logs.
  std::filesystem::path path;
};

// A new folder in `log_dir`, which is made where it is not there: the job has another name where
// that of another job, of another container for one, is the same. PathError.
JobFolder make_job_folder(const std::optional<std::filesystem::path>& log_dir);

}  // namespace fsdptrain::tools
