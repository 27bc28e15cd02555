#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/folder/lock.h"
#include "checkpoint/io/file_system.h"
#include "tools/config/changes.h"
#include "tools/config/config.h"
#include "tools/run/earlier_run.h"

namespace fsdptrain::tools {

// In the folder of a run.
inline constexpr std::string_view kRunRecord = "run.json";
inline constexpr std::string_view kCheckpointsFolder = "checkpoints";

// The folder of one run, run.dir, and the names of what the run leaves in it (docs/formats.md).
// From claim() on no other process runs in it: `lock` there says who does. Moves; not copied.
class RunFolder {
 public:
  struct Options {
    // A run that is there is moved aside, and a new one begins; else it goes on.
    bool overwrite = false;
    // Keys that may differ from those that the run was begun with, though they decide about
    // numbers.
    std::set<std::string> allowed = {};
  };

  // What claim() would refuse, as far as reading can tell; changes nothing.
  static void check_free(const Config& config, const Options& options);
  // Looks at run.dir, and has it, if a run is there, and removes what it has left of checkpoints
  // that came to no end. Nothing else changes before open().
  // ConfigError for a folder that is neither empty nor a run's, one that another process has, one
  // whose run has another configuration (all keys that differ, with both values), and with
  // `overwrite` for one that holds what the run is to read. PathError where none can be made.
  static RunFolder claim(const Config& config, const Options& options);
  // Of an earlier run, to read; DataError if it holds no weights.
  static RunFolder read(const std::filesystem::path& dir);

  // Makes the folder, or has the one that is there, once all input is checked. The run that is to
  // be overwritten becomes `<run.dir>.old-<number>`, whose path is returned.
  std::optional<std::filesystem::path> open();
  // Writes config.toml; with run.json there first, whatever fails leaves the folder of a run.
  void write_config(const Config& config) const;
  // IoError where another process has taken the folder over.
  void check_held() const;

  const std::filesystem::path& path() const { return dir_; }
  // The run that goes on.
  const std::optional<EarlierRun>& earlier() const { return earlier_; }
  // What is allowed to differ from it, and does.
  const std::vector<ConfigChange>& changes() const { return changes_; }
  // Whether it has come to its end, as this configuration has it, and left its weights.
  bool is_done() const;

  std::filesystem::path record() const { return dir_ / kRunRecord; }
  std::filesystem::path metrics() const { return dir_ / "metrics.jsonl"; }
  std::filesystem::path samples() const { return dir_ / "samples.jsonl"; }
  std::filesystem::path weights() const { return dir_ / "weights.safetensors"; }
  std::filesystem::path average_weights() const { return dir_ / "weights_ema.safetensors"; }
  std::filesystem::path checkpoints() const { return dir_ / kCheckpointsFolder; }

 private:
  enum class Contents { Nothing, Run };

  explicit RunFolder(std::filesystem::path dir);
  // Throws for contents that a run cannot begin beside.
  Contents look(const Options& options) const;
  void read_earlier(const Config& config, const Options& options);
  void take_lock();
  void remove_leftovers() const;
  std::filesystem::path move_aside();

  std::filesystem::path dir_;
  std::unique_ptr<checkpoint::FileSystem> files_;
  // Null where the folder is only read.
  std::unique_ptr<checkpoint::RunLock> lock_;
  bool is_replaced_ = false;
  std::optional<EarlierRun> earlier_;
  std::vector<ConfigChange> changes_;
};

}  // namespace fsdptrain::tools
