#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/train/datasets.h"

namespace fsdptrain::tools {

// What run.json says beside what the process, the build and the machine say of themselves.
struct RunFacts {
  int num_ranks = 1;
  std::vector<DataFile> data;
  std::int64_t num_parameters = 0;
  double flops_per_token = 0;
  // Operations per second of the threads of all ranks, measured when the run began; none where it
  // was not.
  std::optional<double> measured_rate = {};
};

// How a run came to its end. Running: it goes on, or its process was killed.
enum class RunStatus { Running, Done, Stopped, Failed };

struct RunEnd {
  RunStatus status = RunStatus::Running;
  int exit_code = 0;
  // Optimizer steps done.
  std::int64_t steps = 0;
  double seconds = 0;
  // Of a failure.
  std::string error = {};
};

// run.json (docs/formats.md): by what, where and on what a run was made, and how it ended. The file
// changes in one step. Reads the bound rank context; IoError where the file cannot be written.
class RunRecord {
 public:
  // Of a folder that has none: the first attempt.
  RunRecord(std::filesystem::path path, const RunFacts& facts);

  std::int64_t attempt() const { return 1; }
  void end(const RunEnd& end);

  // Whether the file says that a run of this program wrote it.
  static bool is_record(const std::filesystem::path& path);

 private:
  void write() const;

  std::filesystem::path path_;
  nlohmann::ordered_json json_;
};

}  // namespace fsdptrain::tools
