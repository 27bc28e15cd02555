#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "checkpoint/folder/lock_owner.h"
#include "checkpoint/io/file_system.h"
#include "comm/clock.h"

namespace fsdptrain::checkpoint {

// In the folder of a run.
inline constexpr std::string_view kLockName = "lock";

// One process at a time has a run's folder: `lock` in it is a folder that says who. An owner that
// died in the same boot of the machine is replaced at once; one of another machine, or of which
// nobody can tell, after no sign of it for a time; one that lives is named in a ConfigError. Of
// several that come at once, one gets it. Needs nothing of a file system but that making a name
// that exists fails, so that it holds on network file systems.
//
// [Note: generations] `lock` holds a folder for each owner there was, numbered, of which the
// highest counts. A new one appears whole, by a rename that replaces nothing, so that of two that
// found the same owner dead one comes too late. Numbers are not used twice: who gives the lock back
// leaves its folder there, marked. The lower ones are removed by the next owner.
class RunLock {
 public:
  struct Options {
    LockOwner self = this_process();
    // Of a neighbor.
    std::function<bool(const LockOwner&)> alive = is_alive;
    // Called where the only way to know is to wait, once, with whom for.
    std::function<void(const std::string&)> on_wait = {};
    const comm::Clock* clock = &comm::monotonic_clock();
    // Waits; empty: the thread sleeps.
    std::function<void(comm::Nanoseconds)> sleep = {};
    comm::Nanoseconds heartbeat = std::chrono::seconds(10);
    comm::Nanoseconds stale_after = std::chrono::seconds(60);
    // By a thread of its own; else by calls of beat().
    bool beats = true;
  };

  // The folder exists, and `files` outlives the lock. ConfigError naming a living owner, IoError
  // where the folder cannot be written to.
  static std::unique_ptr<RunLock> acquire(FileSystem& files, const std::filesystem::path& folder,
                                          Options options);
  static std::unique_ptr<RunLock> acquire(FileSystem& files, const std::filesystem::path& folder);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  // Gives it back. What goes wrong there is logged: the next owner sees that this process is gone.
  ~RunLock();

  // IoError naming the new owner if this process was taken for dead, as one that was stopped for
  // long is: it must not write any more. Ask before what others see, such as a commit. Any thread.
  void check_held();
  // Gives the folder another name, with the lock in it: nobody can have it before it is given back
  // there. There are no signs of life from now on. IoError or PathError where that cannot be.
  void rename_folder(const std::filesystem::path& to);
  // A sign of life.
  void beat();
  const LockOwner& owner() const { return options_.self; }

 private:
  RunLock(FileSystem& files, std::filesystem::path lock, std::int64_t generation, Options options);
  void run_heart();
  void end_heart();
  std::filesystem::path own_folder() const;
  // Who has the lock now; none where nobody has left a name.
  std::optional<LockOwner> holder() const;
  bool is_this(const std::optional<LockOwner>& owner) const;

  FileSystem& files_;
  std::filesystem::path lock_;
  std::int64_t generation_;
  Options options_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::uint64_t num_beats_ = 0;
  std::thread heart_;
};

}  // namespace fsdptrain::checkpoint
