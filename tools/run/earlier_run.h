#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/train/datasets.h"

namespace fsdptrain::tools {

// What run.json says of a run so far (docs/formats.md), for the attempt that goes on.
class EarlierRun {
 public:
  // None where no run of this program wrote the file. DataError for one that is damaged, or of a
  // program that could not go on.
  static std::optional<EarlierRun> read(const std::filesystem::path& path);

  // Of the last attempt.
  std::int64_t attempt() const { return attempt_; }
  bool is_done() const { return is_done_; }
  std::int64_t steps() const { return steps_; }
  const Config& config() const { return config_; }
  const std::vector<DataFile>& data() const { return data_; }
  // ConfigHash::numerics of all attempts.
  const std::set<std::string>& numerics() const { return numerics_; }
  // All attempts, in order, in the form of `earlier` in run.json.
  const nlohmann::ordered_json& attempts() const { return attempts_; }

 private:
  explicit EarlierRun(const nlohmann::ordered_json& json);

  std::int64_t attempt_;
  bool is_done_;
  std::int64_t steps_;
  Config config_;
  std::vector<DataFile> data_;
  std::set<std::string> numerics_;
  nlohmann::ordered_json attempts_;
};

// Whether the file says that a run of this program wrote it.
bool is_run_record(const std::filesystem::path& path);

}  // namespace fsdptrain::tools
