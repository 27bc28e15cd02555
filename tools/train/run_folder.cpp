#include "tools/train/run_folder.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// Puts the key in front of what is wrong with its path.
template <class Action>
auto naming_run_dir(const Action& action) {
  try {
    return action();
  } catch (PathError& error) {
    error.add_context("run.dir");
    throw;
  }
}

// Opens the folder and locks it until it is closed or the process ends. Where the file system
// knows no locks, the one that makes config.toml has the folder all the same.
int lock_folder(const fs::path& dir) {
  const int descriptor = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    fail_path(dir, "opening the folder", errno);
  }
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
  if (!fs::exists(folder.dir_, error)) {
    naming_run_dir([&] { missing_folders(folder.dir_); });
    return;
  }
  if (!folder.check_contents(existing)) {
    return;
  }
  const RunFolder taken(folder.dir_, naming_run_dir([&] { return lock_folder(folder.dir_); }));
  const auto check_kept = [&](std::string_view key, const std::string& input) {
    for (const fs::path& path : folder.files()) {
      check<ConfigError>(!fs::equivalent(input, path, error),
                         "{}: {} would be removed by --overwrite: move it to another place, or "
                         "give another run.dir",
                         key, input);
    }
  };
  check_kept("model.init_from", config.model.init_from);
  for (const std::string& input : config.data.tokens) {
    check_kept("data.tokens", input);
  }
  for (const std::string& input : config.data.validation) {
    check_kept("data.validation", input);
  }
}

// The record last: whatever interrupts their removal, the folder stays one that can be overwritten.
std::vector<fs::path> RunFolder::files() const {
  return {weights(), average_weights(), metrics(), samples(), config(), record()};
}

bool RunFolder::check_contents(Existing existing) const {
  std::error_code error;
  const bool is_folder = fs::is_directory(dir_, error);
  if (is_folder) {
    const bool is_empty = fs::is_empty(dir_, error);
    if (error) {
      naming_run_dir([&] { fail_path(dir_, "listing the folder", error.value()); });
    }
    if (is_empty) {
      return false;
    }
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
  for (const fs::path& path : files()) {
    std::error_code error;
    fs::remove(path, error);
    check<IoError>(!error, "run.dir: {} cannot be removed: {}", path.string(), error.message());
  }
}

RunFolder RunFolder::create(const Config& config, Existing existing) {
  const fs::path dir = config.run.dir;
  std::error_code error;
  if (!fs::exists(dir, error)) {
    naming_run_dir([&] { make_folders(dir); });
  } else {
    RunFolder(dir, -1).check_contents(existing);
  }
  RunFolder folder(dir, naming_run_dir([&] { return lock_folder(dir); }));
  if (folder.check_contents(existing)) {
    folder.remove_run();
  }
  return folder;
}

void RunFolder::write_config(const Config& config) const {
  const std::string toml = to_toml(config);
  AtomicFile file(this->config());
  file.write_at(0, std::as_bytes(std::span(toml)));
  file.commit();
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
