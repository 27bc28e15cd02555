#include "checkpoint/folder/lock.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fsdptrain::checkpoint {
namespace {

using std::filesystem::path;

// In an owner's folder.
constexpr const char* kOwnerName = "owner.json";
constexpr const char* kHeartbeatName = "heartbeat";
constexpr const char* kReleasedName = "released";
// Of a folder that is to become an owner's.
constexpr std::string_view kNewPrefix = "new.";
constexpr std::uint64_t kMaxTextBytes = 65536;
// Nobody begins so often: a name beyond it is none of ours.
constexpr std::int64_t kMaxGeneration = 1'000'000'000'000;
// Of how others see a heartbeat.
constexpr comm::Nanoseconds kLook = std::chrono::seconds(1);
// Of finding that somebody else was faster: each time another process got the lock.
constexpr int kMaxTries = 100;

std::string generation_name(std::int64_t generation) {
  return fmt::format("{:08}", generation);
}

std::optional<std::int64_t> generation_of(std::string_view name) {
  std::int64_t generation = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, generation);
  const bool is_number =
      error == std::errc() && rest == end && generation > 0 && generation < kMaxGeneration;
  return is_number && generation_name(generation) == name ? std::optional(generation)
                                                          : std::nullopt;
}

// 0 for none.
std::int64_t highest_generation(FileSystem& files, const path& lock) {
  std::int64_t highest = 0;
  for (const FolderEntry& entry : files.list(lock)) {
    highest = std::max(highest, generation_of(entry.name).value_or(0));
  }
  return highest;
}

// Empty where there is none.
std::string text_at(FileSystem& files, const path& file) {
  try {
    return read_text(files, file, kMaxTextBytes);
  } catch (const DataError&) {
    return {};
  }
}

[[noreturn]] void refuse(const path& lock, const std::string& owner) {
  fail<ConfigError>("{}: the folder is in use by {}: wait for it, or end it first", lock.string(),
                    owner);
}

// One attempt to become the owner.
class Entry {
 public:
  Entry(FileSystem& files, path lock, const RunLock::Options& options)
      : files_(files), lock_(std::move(lock)), options_(options) {}

  // The generation that it got; none where somebody was faster.
  std::optional<std::int64_t> try_once() {
    const std::int64_t highest = highest_generation(files_, lock_);
    if (highest > 0 && !is_free(highest)) {
      return std::nullopt;
    }
    const std::int64_t mine = highest + 1;
    if (!appear_as(mine)) {
      return std::nullopt;
    }
    // Who was slow may have got a number that was removed behind its owner.
    if (highest_generation(files_, lock_) != mine) {
      remove_leftover(lock_ / generation_name(mine));
      return std::nullopt;
    }
    remove_others(mine);
    return mine;
  }

 private:
  // Whether the owner is gone; refuses if it lives. False where it is no longer that one.
  bool is_free(std::int64_t generation) {
    const path folder = lock_ / generation_name(generation);
    const std::optional<LockOwner> owner = parse_owner(text_at(files_, folder / kOwnerName));
    if (files_.kind_of(folder / kReleasedName)) {
      return true;
    }
    if (owner && is_neighbor(*owner, options_.self)) {
      if (options_.alive(*owner)) {
        refuse(lock_, to_string(*owner));
      }
      return true;
    }
    // What a later owner removes has no name either.
    return highest_generation(files_, lock_) == generation &&
           becomes_silent(generation, owner ? to_string(*owner) : "a process that left no name");
  }

  bool becomes_silent(std::int64_t generation, const std::string& owner) {
    const path folder = lock_ / generation_name(generation);
    if (options_.on_wait) {
      options_.on_wait(owner);
    }
    const std::string seen = text_at(files_, folder / kHeartbeatName);
    const comm::Deadline silent(*options_.clock, options_.stale_after);
    while (!silent.passed()) {
      options_.sleep(std::min(kLook, silent.left()));
      if (highest_generation(files_, lock_) != generation) {
        return false;
      }
      if (files_.kind_of(folder / kReleasedName)) {
        return true;
      }
      if (text_at(files_, folder / kHeartbeatName) != seen) {
        refuse(lock_, owner);
      }
    }
    return true;
  }

  bool appear_as(std::int64_t generation) {
    const path made = lock_ / fmt::format("{}{}", kNewPrefix, options_.self.token);
    try {
      files_.make_folder(made);
      write_new(files_, made / kOwnerName, to_text(options_.self));
      write_new(files_, made / kHeartbeatName, "0\n");
      files_.rename(made, lock_ / generation_name(generation));
      return true;
    } catch (const Error&) {
      remove_leftover(made);
      // Who came first has the number, and removes what is not its own.
      if (highest_generation(files_, lock_) < generation) {
        throw;
      }
      return false;
    }
  }

  // Others remove it too, at the same time.
  void remove_leftover(const path& leftover) {
    try {
      remove_all(files_, leftover);
    } catch (const Error&) {
      // It is in nobody's way, and the next owner tries again.
      return;
    }
  }

  void remove_others(std::int64_t mine) {
    for (const FolderEntry& entry : files_.list(lock_)) {
      const bool is_older = generation_of(entry.name).value_or(mine) < mine;
      if (is_older || entry.name.starts_with(kNewPrefix)) {
        remove_leftover(lock_ / entry.name);
      }
    }
  }

  FileSystem& files_;
  path lock_;
  const RunLock::Options& options_;
};

}  // namespace

std::unique_ptr<RunLock> RunLock::acquire(FileSystem& files, const path& folder) {
  return acquire(files, folder, Options{});
}

std::unique_ptr<RunLock> RunLock::acquire(FileSystem& files, const path& folder, Options options) {
  if (!options.sleep) {
    options.sleep = [](comm::Nanoseconds time) { std::this_thread::sleep_for(time); };
  }
  const path lock = folder / kLockName;
  files.make_folder(lock);
  for (int i = 0; i < kMaxTries; ++i) {
    if (const auto generation = Entry(files, lock, options).try_once()) {
      // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the constructor is private.
      return std::unique_ptr<RunLock>(new RunLock(files, lock, *generation, std::move(options)));
    }
  }
  refuse(lock, "others that come and go");
}

RunLock::RunLock(FileSystem& files, path lock, std::int64_t generation, Options options)
    : files_(files), lock_(std::move(lock)), generation_(generation), options_(std::move(options)) {
  if (options_.beats) {
    heart_ = std::thread([this] { run_heart(); });
  }
}

void RunLock::end_heart() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  if (heart_.joinable()) {
    heart_.join();
  }
}

void RunLock::rename_folder(const path& to) {
  check_held();
  end_heart();
  files_.rename(lock_.parent_path(), to);
  lock_ = to / kLockName;
}

RunLock::~RunLock() {
  end_heart();
  try {
    if (is_this(holder())) {
      write_new(files_, own_folder() / kReleasedName, "");
    }
  } catch (const std::exception& error) {
    log_warning("the lock was not given back: {}", error.what());
  }
}

path RunLock::own_folder() const {
  return lock_ / generation_name(generation_);
}

std::optional<LockOwner> RunLock::holder() const {
  const std::string number = generation_name(highest_generation(files_, lock_));
  return parse_owner(text_at(files_, lock_ / number / kOwnerName));
}

bool RunLock::is_this(const std::optional<LockOwner>& owner) const {
  // Not by its number: where somebody has removed all of the lock, they begin anew.
  return owner && owner->token == options_.self.token;
}

void RunLock::check_held() {
  const std::optional<LockOwner> owner = holder();
  if (is_this(owner)) {
    return;
  }
  fail<IoError>(
      "{}: this process gave no sign of life for so long that the folder went to {}: nothing more "
      "is written",
      lock_.string(), owner ? to_string(*owner) : "nobody who left a name");
}

void RunLock::beat() {
  check_held();
  replace_text(files_, own_folder() / kHeartbeatName, fmt::format("{}\n", ++num_beats_));
}

void RunLock::run_heart() {
  bool warned = false;
  std::unique_lock guard(mutex_);
  while (!ends_.wait_for(guard, options_.heartbeat, [this] { return ending_; })) {
    guard.unlock();
    try {
      beat();
    } catch (const std::exception& error) {
      if (!std::exchange(warned, true)) {
        log_warning("the lock shows no sign of life: {}", error.what());
      }
    }
    guard.lock();
  }
}

}  // namespace fsdptrain::checkpoint
