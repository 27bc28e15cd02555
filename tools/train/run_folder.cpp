#include "tools/train/run_folder.h"

#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/config_print.h"

namespace fsdptrain::tools {

namespace fs = std::filesystem;

namespace {

void check_is_new(bool is_new, const fs::path& dir) {
  check<ConfigError>(is_new, "run.dir: {} exists already: give another folder, or move it away",
                     dir.string());
}

}  // namespace

void RunFolder::refuse_existing(const Config& config) {
  const fs::path dir = config.run.dir;
  std::error_code error;
  check_is_new(
      !fs::exists(dir, error) || (fs::is_directory(dir, error) && fs::is_empty(dir, error)), dir);
}

RunFolder RunFolder::create(const Config& config) {
  refuse_existing(config);
  const fs::path dir = config.run.dir;
  std::error_code error;
  fs::create_directories(dir, error);
  check<IoError>(!error, "run.dir: {} cannot be made: {}", dir.string(), error.message());
  // Of runs that begin at the same time, the one that makes this file has the folder.
  std::optional<File> file = File::create(dir / "config.toml");
  check_is_new(file.has_value(), dir);
  const std::string toml = to_toml(config);
  file->write_at(0, std::as_bytes(std::span(toml)));
  file->sync();
  return RunFolder(dir);
}

RunFolder RunFolder::open(const fs::path& dir) {
  RunFolder folder(dir);
  std::error_code error;
  check<DataError>(fs::exists(folder.weights(), error),
                   "{}: holds no weights.safetensors: give the folder of a run that has ended",
                   dir.string());
  return folder;
}

}  // namespace fsdptrain::tools
