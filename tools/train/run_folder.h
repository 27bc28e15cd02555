#pragma once

#include <filesystem>

#include "tools/config.h"

namespace fsdptrain::tools {

// What a run leaves behind: <run.dir>/config.toml, metrics.jsonl and weights.safetensors.
class RunFolder {
 public:
  // ConfigError if run.dir exists and is not an empty folder.
  static void refuse_existing(const Config& config);
  // Makes the folder and writes the resolved configuration; ConfigError as above, also for all but
  // one of several callers at the same time.
  static RunFolder create(const Config& config);
  // Of an earlier run; DataError if it holds no weights.
  static RunFolder open(const std::filesystem::path& dir);

  std::filesystem::path metrics() const { return dir_ / "metrics.jsonl"; }
  std::filesystem::path weights() const { return dir_ / "weights.safetensors"; }

 private:
  explicit RunFolder(std::filesystem::path dir) : dir_(std::move(dir)) {}

  std::filesystem::path dir_;
};

}  // namespace fsdptrain::tools
