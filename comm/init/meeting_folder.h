#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/clock.h"
#include "comm/init/environment.h"
#include "comm/store/auth.h"
#include "comm/store/transport.h"
#include "runtime/base/descriptor.h"

// Where the ranks of a host find each other that another launcher than ours has started: a folder
// that only their user may enter, with a socket and the token of the job, and there only until all
// have met.
namespace fsdptrain::comm {

// In XDG_RUNTIME_DIR, else TMPDIR, else /tmp: the first that this user may write to; named by user,
// job and port. ConfigError where there is none.
std::filesystem::path meeting_folder(const Membership& membership, const Lookup& lookup);

// Rank 0's part. Locks the folder: the lock ends with the process, however it ends, and what a dead
// rank 0 has left is taken over.
class MeetingFolder {
 public:
  // ConfigError if others may enter the folder, or if it is that of another job that is just
  // starting.
  explicit MeetingFolder(std::filesystem::path path);
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;
  // Removes the folder.
  ~MeetingFolder();

  std::unique_ptr<store::Listener> listen() const;
  // The others may come from now on.
  void publish(const store::Secret& token) const;

 private:
  std::filesystem::path path_;
  Descriptor lock_;
};

// What the other ranks make of it.
struct Meet {
  store::Secret token;
  std::unique_ptr<store::Connection> connection;
};

// Waits until rank 0 is there; TimeoutError, ConfigError if others may enter the folder or have
// made what lies in it.
// `check_stop`, if there is any, is called between looks.
Meet come_to(const std::filesystem::path& folder, const Deadline& deadline,
             const std::function<void()>& check_stop = {});

// What rank 0 has published, /proc/PID/fd/N, shared by all ranks. Where that cannot be opened,
// `expect_end` waits for a moment and throws if rank 0 has ended meanwhile; else ConfigError.
Descriptor open_memory_of_rank_0(const std::string& path, const std::function<void()>& expect_end);

}  // namespace fsdptrain::comm
