#pragma once

#include <filesystem>
#include <utility>
#include <vector>

#include "tools/config.h"

namespace fsdptrain::tools {

// The folder of one run, run.dir, and the names of what the run leaves in it (docs/formats.md).
// While a run holds it, no other run can have it. Moves; not copied.
class RunFolder {
 public:
  // What a folder that holds a run may meet: another run refuses it, or replaces it.
  enum class Existing { Refuse, Overwrite };

  // ConfigError or PathError if create() would refuse run.dir as it is now, ConfigError if it would
  // remove a file that the run is to read; changes nothing.
  static void check_free(const Config& config, Existing existing);
  // Makes the folder, or takes an empty one; with Overwrite, takes one whose run.json is that of a
  // run, and removes the files of that run and nothing else.
  // ConfigError for any other folder, one that a run writes to right now, and for all but one of
  // several callers at the same time. PathError where no folder can be made.
  static RunFolder create(const Config& config, Existing existing);
  // Writes config.toml; with run.json there first, whatever fails leaves the folder of a run.
  void write_config(const Config& config) const;
  // Of an earlier run, to read; DataError if it holds no weights.
  static RunFolder open(const std::filesystem::path& dir);

  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();

  std::filesystem::path record() const { return dir_ / "run.json"; }
  std::filesystem::path metrics() const { return dir_ / "metrics.jsonl"; }
  std::filesystem::path samples() const { return dir_ / "samples.jsonl"; }
  std::filesystem::path weights() const { return dir_ / "weights.safetensors"; }
  std::filesystem::path average_weights() const { return dir_ / "weights_ema.safetensors"; }

 private:
  RunFolder(std::filesystem::path dir, int lock) : dir_(std::move(dir)), lock_(lock) {}
  std::filesystem::path config() const { return dir_ / "config.toml"; }
  // ConfigError unless the folder is empty, or that of a run that may be replaced: true then.
  bool check_contents(Existing existing) const;
  // All that a run leaves here.
  std::vector<std::filesystem::path> files() const;
  void remove_run() const;

  std::filesystem::path dir_;
  // A descriptor of the folder, locked; -1 where it is only read.
  int lock_;
};

}  // namespace fsdptrain::tools
