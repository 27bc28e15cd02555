#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/config/changes.h"
#include "tools/run/earlier_run.h"
#include "tools/train/datasets.h"

namespace fsdptrain::tools {

// These values are embedded in files: do not change them.
inline constexpr std::string_view kRecordFormat = "fsdptrain-run";
inline constexpr int kRecordVersion = 1;

// What run.json says beside what the process, the build and the machine say of themselves.
struct RunFacts {
  int num_ranks = 1;
  std::vector<DataFile> data;
  std::int64_t num_parameters = 0;
  double flops_per_token = 0;
  // Operations per second of the threads of all ranks, measured when the run began; none where it
  // was not.
  std::optional<double> measured_rate = {};
  // Steps done when the attempt began: those of the checkpoint that it went on from.
  std::int64_t resumed_step = 0;
  // What is allowed to differ from the attempt before.
  std::vector<ConfigChange> changes = {};
};

// How a run came to its end. Running: it goes on, or its process was killed.
enum class RunStatus { Running, Done, Stopped, Failed };
std::string_view name_of(RunStatus status);

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
  // Of the first attempt, or of the one behind those of an earlier run.
  RunRecord(std::filesystem::path path, const Config& config, const RunFacts& facts,
            const std::optional<EarlierRun>& earlier = {});

  std::int64_t attempt() const { return attempt_; }
  void end(const RunEnd& end);

 private:
  void write() const;

  std::filesystem::path path_;
  std::int64_t attempt_;
  nlohmann::ordered_json json_;
};

}  // namespace fsdptrain::tools
