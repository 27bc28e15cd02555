#include "tools/train/run_folder.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <span>
#include <string>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tools/config_print.h"
#include "tools/train/run_record.h"

namespace fsdptrain::tools {

namespace fs = std::filesystem;

namespace {

// Opens the folder and locks it until it is closed or the process ends. Where the file system
// knows no locks, the one that makes config.toml has the folder all the same.
int lock_folder(const fs::path& dir) {
  const int descriptor = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check<IoError>(descriptor >= 0, "run.dir: {} cannot be opened: {}", dir.string(),
                 std::generic_category().message(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor);
    fail<ConfigError>("run.dir: a run writes to {} right now: give another folder, or end that run",
                      dir.string());
  }
  return descriptor;
}

}  // namespace

RunFolder::RunFolder(RunFolder&& other) noexcept
    : dir_(std::move(other.dir_)), lock_(std::exchange(other.lock_, -1)) {}

RunFolder::~RunFolder() {
  if (lock_ >= 0) {
    ::close(lock_);
  }
}

void RunFolder::check_free(const Config& config, Existing existing) {
  const RunFolder folder(config.run.dir, -1);
  std::error_code error;
  if (!fs::exists(folder.dir_, error) || !folder.check_contents(existing)) {
    return;
  }
  const RunFolder taken(folder.dir_, lock_folder(folder.dir_));
  for (const fs::path& path : {folder.weights(), folder.average_weights()}) {
    check<ConfigError>(!fs::equivalent(config.model.init_from, path, error),
                       "model.init_from: {} would be removed by --overwrite: move it to another "
                       "place, or give another run.dir",
                       config.model.init_from);
  }
}

bool RunFolder::check_contents(Existing existing) const {
  std::error_code error;
  const bool is_folder = fs::is_directory(dir_, error);
  if (is_folder && fs::is_empty(dir_, error)) {
    return false;
  }
  const bool is_run = is_folder && RunRecord::is_record(record());
  check<ConfigError>(is_run || existing == Existing::Refuse,
                     "run.dir: {} is not the folder of a run (it holds no run.json of fsdptrain), "
                     "so --overwrite leaves it alone: give another folder, or move it away",
                     dir_.string());
  check<ConfigError>(existing == Existing::Overwrite,
                     "run.dir: {} exists already: give another folder, or move it away{}",
                     dir_.string(), is_run ? ", or --overwrite the run in it" : "");
  return true;
}

void RunFolder::remove_run() const {
  // The record last: whatever interrupts this, the folder stays one that can be overwritten.
  for (const fs::path& path :
       {weights(), average_weights(), metrics(), samples(), config(), record()}) {
    std::error_code error;
    fs::remove(path, error);
    check<IoError>(!error, "run.dir: {} cannot be removed: {}", path.string(), error.message());
  }
}

RunFolder RunFolder::create(const Config& config, Existing existing) {
  const fs::path dir = config.run.dir;
  std::error_code error;
  if (!fs::exists(dir, error)) {
    fs::create_directories(dir, error);
    check<IoError>(!error, "run.dir: {} cannot be made: {}", dir.string(), error.message());
  } else {
    RunFolder(dir, -1).check_contents(existing);
  }
  RunFolder folder(dir, lock_folder(dir));
  if (folder.check_contents(existing)) {
    folder.remove_run();
  }
  // Of runs that begin at the same time, the one that makes this file has the folder.
  std::optional<File> file = File::create(folder.config());
  check<ConfigError>(file.has_value(),
                     "run.dir: another run has just begun in {}: give another "
                     "folder",
                     dir.string());
  const std::string toml = to_toml(config);
  file->write_at(0, std::as_bytes(std::span(toml)));
  file->sync();
  return folder;
}

RunFolder RunFolder::open(const fs::path& dir) {
  RunFolder folder(dir, -1);
  std::error_code error;
  check<DataError>(fs::exists(folder.weights(), error),
                   "{}: holds no weights.safetensors: give the folder of a run that has ended",
                   dir.string());
  return folder;
}

}  // namespace fsdptrain::tools
