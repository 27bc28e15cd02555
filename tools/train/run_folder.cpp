#include "tools/train/run_folder.h"

#include <span>
#include <string>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/config_print.h"

namespace fsdptrain::tools {

namespace fs = std::filesystem;

void RunFolder::refuse_existing(const Config& config) {
  const fs::path dir = config.run.dir;
  std::error_code error;
  check<ConfigError>(
      !fs::exists(dir, error) || (fs::is_directory(dir, error) && fs::is_empty(dir, error)),
      "run.dir: {} exists already: give another folder, or move it away", dir.string());
}

RunFolder RunFolder::create(const Config& config) {
  refuse_existing(config);
  const fs::path dir = config.run.dir;
  std::error_code error;
  fs::create_directories(dir, error);
  check<IoError>(!error, "run.dir: {} cannot be made: {}", dir.string(), error.message());
  const std::string toml = to_toml(config);
  AtomicFile file(dir / "config.toml");
  file.write_at(0, std::as_bytes(std::span(toml)));
  file.commit();
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
