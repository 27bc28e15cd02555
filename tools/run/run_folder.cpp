#include "tools/run/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/folder/names.h"
#include "checkpoint/folder/staging.h"
#include "checkpoint/safetensors/file.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "tools/config/print.h"

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

// As far as its header goes.
bool is_readable(const fs::path& weights) {
  try {
    const checkpoint::SafetensorsReader header(weights);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A process that ended before it wrote anything leaves its lock.
bool is_unused(const fs::path& dir) {
  std::error_code error;
  fs::directory_iterator entry(dir, error);
  bool empty = true;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    empty = empty && entry->path().filename() == checkpoint::kLockName;
  }
  if (error) {
    naming_run_dir([&] { fail_path(dir, "listing the folder", error.value()); });
  }
  return empty;
}

bool is_inside(const std::string& input, const fs::path& dir) {
  std::error_code error;
  const fs::path inside =
      fs::weakly_canonical(input, error).lexically_relative(fs::weakly_canonical(dir, error));
  return !inside.empty() && *inside.begin() != "..";
}

// What a run reads must stay where it is.
void check_inputs_stay(const Config& config, const fs::path& dir) {
  const auto check_stays = [&dir](std::string_view key, const std::string& input) {
    check<ConfigError>(input.empty() || !is_inside(input, dir),
                       "{}: {} would be moved away by --overwrite: move it to another place, or "
                       "give another run.dir",
                       key, input);
  };
  check_stays("model.init_from", config.model.init_from);
  for (const std::string& input : config.data.tokens) {
    check_stays("data.tokens", input);
  }
  for (const std::string& input : config.data.validation) {
    check_stays("data.validation", input);
  }
}

// What is in these belongs to checkpoints or to the lock of a run.
void check_apart(const fs::path& dir) {
  std::error_code error;
  for (fs::path folder = fs::absolute(dir).lexically_normal(); folder.has_relative_path();
       folder = folder.parent_path()) {
    const std::string name = folder.filename();
    const bool is_lock =
        name == checkpoint::kLockName && fs::exists(folder.parent_path() / kRunRecord, error);
    check<ConfigError>(
        !is_lock && name != checkpoint::kStagingFolder && name != checkpoint::kTrashFolder,
        "run.dir: {} lies in {}, which is for checkpoints or a lock alone: give another folder",
        dir.string(), folder.string());
  }
}

// The working directory cannot be moved, nor what is called by way of itself.
void check_has_name(const fs::path& dir) {
  const fs::path name = dir.has_filename() ? dir.filename() : dir.parent_path().filename();
  check<ConfigError>(name != "." && name != "..",
                     "run.dir: {} cannot be moved away by --overwrite under this name: give its "
                     "own, from the folder that it is in",
                     dir.string());
}

// Those that are allowed; ConfigError naming the others.
std::vector<ConfigChange> allowed_changes(const Config& before, const Config& now,
                                          const RunFolder::Options& options,
                                          const std::string& dir) {
  std::vector<ConfigChange> allowed;
  std::vector<std::string> refused;
  std::vector<std::string> keys;
  for (const ConfigChange& change : numeric_changes(before, now)) {
    if (options.allowed.contains(change.key)) {
      allowed.push_back(change);
    } else {
      refused.push_back(to_string(change));
      keys.push_back(change.key);
    }
  }
  check<ConfigError>(refused.empty(),
                     "run.dir: the run in {} was begun with another configuration: {}; give "
                     "another run.dir, --overwrite, or, to go on with it changed, "
                     "--allow-change={}",
                     dir, fmt::join(refused, "; "), fmt::join(keys, ","));
  return allowed;
}

}  // namespace

RunFolder::RunFolder(fs::path dir)
    : dir_(std::move(dir)), files_(checkpoint::make_real_file_system()) {}

RunFolder::Contents RunFolder::look(const Options& options) const {
  std::error_code error;
  check_apart(dir_);
  if (!fs::exists(dir_, error)) {
    naming_run_dir([&] { missing_folders(dir_); });
    return Contents::Nothing;
  }
  const bool is_folder = fs::is_directory(dir_, error);
  if (is_folder && is_unused(dir_)) {
    return Contents::Nothing;
  }
  check<ConfigError>(is_folder && is_run_record(record()),
                     "run.dir: {} is there and is not the folder of a run (it holds no run.json of "
                     "fsdptrain){}: give another folder, or move it away",
                     dir_.string(), options.overwrite ? ", so --overwrite leaves it alone" : "");
  return Contents::Run;
}

void RunFolder::read_earlier(const Config& config, const Options& options) {
  if (options.overwrite) {
    check_has_name(dir_);
    check_inputs_stay(config, dir_);
    is_replaced_ = true;
    return;
  }
  earlier_ = EarlierRun::read(record());
  check<ConfigError>(earlier_.has_value(),
                     "run.dir: the run in {} is gone since: give another folder, or try again",
                     dir_.string());
  changes_ = allowed_changes(earlier_->config(), config, options, dir_.string());
}

void RunFolder::check_free(const Config& config, const Options& options) {
  RunFolder folder(config.run.dir);
  if (folder.look(options) == Contents::Run) {
    folder.read_earlier(config, options);
  }
}

RunFolder RunFolder::claim(const Config& config, const Options& options) {
  RunFolder folder(config.run.dir);
  if (folder.look(options) == Contents::Run) {
    folder.take_lock();
    // Behind the lock, as its last owner has left it.
    folder.read_earlier(config, options);
    if (!options.overwrite) {
      folder.remove_leftovers();
    }
  }
  return folder;
}

RunFolder RunFolder::read(const fs::path& dir) {
  RunFolder folder(dir);
  std::error_code error;
  check<DataError>(fs::exists(folder.weights(), error),
                   "{}: holds no weights.safetensors: give the folder of a run that has ended",
                   dir.string());
  return folder;
}

void RunFolder::take_lock() {
  const fs::path lock = dir_ / checkpoint::kLockName;
  std::error_code unread;
  check<ConfigError>(!fs::exists(lock, unread) || fs::is_directory(lock, unread),
                     "run.dir: {} is no folder, so that it cannot say who runs here: move it away",
                     lock.string());
  try {
    lock_ = checkpoint::RunLock::acquire(*files_, dir_, {.on_wait = [](const std::string& owner) {
      log_warning("run.dir: waits a minute for a sign of life of {}", owner);
    }});
  } catch (Error& error) {
    error.add_context("run.dir");
    throw;
  }
}

void RunFolder::remove_leftovers() const {
  for (const std::string& problem : checkpoint::sweep(*files_, checkpoints())) {
    log_warning("{}", problem);
  }
}

void RunFolder::check_held() const {
  try {
    lock_->check_held();
  } catch (const DataError& gone) {
    fail<IoError>("{}", gone.what());
  }
}

fs::path RunFolder::move_aside() {
  const fs::path name = dir_.has_filename() ? dir_ : dir_.parent_path();
  for (std::int64_t number = 1;; ++number) {
    fs::path old = name;
    old += fmt::format(".old-{}", number);
    if (!files_->kind_of(old)) {
      // Given back there, so that nobody goes on with the run in between.
      lock_->rename_folder(old);
      lock_.reset();
      return old;
    }
  }
}

std::optional<fs::path> RunFolder::open() {
  std::optional<fs::path> old;
  if (std::exchange(is_replaced_, false)) {
    old = move_aside();
  }
  if (lock_) {
    return old;
  }
  naming_run_dir([&] { make_folders(dir_); });
  take_lock();
  check<ConfigError>(is_unused(dir_),
                     "run.dir: another run has begun in {} meanwhile: give another "
                     "folder, or try again to go on with it",
                     dir_.string());
  return old;
}

bool RunFolder::is_done() const {
  return earlier_ && earlier_->is_done() && changes_.empty() && is_readable(weights());
}

void RunFolder::write_config(const Config& config) const {
  const std::string toml = to_toml(config);
  AtomicFile file(dir_ / "config.toml");
  file.write_at(0, std::as_bytes(std::span(toml)));
  file.commit();
}

}  // namespace fsdptrain::tools
