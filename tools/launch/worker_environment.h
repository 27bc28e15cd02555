#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comm/init/worker_spec.h"
#include "runtime/base/process.h"

// What a worker finds in its environment: torchrun's variables, and where it finds what the
// launcher made for it.
namespace fsdptrain::tools {

// The job's name; what comes of its workers can be told by it.
inline constexpr const char* kJobVariable = "TORCHELASTIC_RUN_ID";

struct Worker {
  int rank = 0;
  int num_ranks = 1;
  // Of the processors that it may use.
  int num_threads = 1;
  std::string job_id;
  std::string role;
  std::string master_addr;
  int master_port = 0;
  comm::WorkerSpec spec = {};
  // Where others write why a worker failed; with a log folder.
  std::optional<std::filesystem::path> error_file = std::nullopt;
  // Of the launcher's terminal, for the rank that may show progress there.
  std::optional<int> terminal_columns = std::nullopt;
};

// `base` is the launcher's own; what a launcher around this one has set for its workers is
// replaced.
Environment worker_environment(const Environment& base, const Worker& worker);

}  // namespace fsdptrain::tools
