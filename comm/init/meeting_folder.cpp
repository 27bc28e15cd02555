#include "comm/init/meeting_folder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "comm/error.h"
#include "comm/fnv.h"
#include "comm/store/unix_transport.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

constexpr Nanoseconds kPause = std::chrono::milliseconds(10);
constexpr std::size_t kLongestName = 24;

std::string reason() {
  return std::generic_category().message(errno);
}

// What can stand in a path, and differs where the text does.
std::string path_word(std::string_view text) {
  std::string word;
  for (const char c : text.substr(0, kLongestName)) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    word += is_plain ? c : '_';
  }
  if (word != text) {
    Fnv hash;
    hash.add(text);
    word += fmt::format("-{:08x}", hash.value() & 0xffffffff);
  }
  return word.empty() ? "none" : word;
}

// Each rank finds the same: they have one environment.
std::filesystem::path base_folder(const Lookup& lookup) {
  std::string tried;
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR", ""}) {
    const std::string path = *name == '\0' ? "/tmp" : lookup(name).value_or("");
    if (path.empty()) {
      continue;
    }
    // With a slash behind, only a folder is there.
    if (::access((path + "/").c_str(), W_OK | X_OK) == 0) {
      return path;
    }
    tried += fmt::format("{}{}{}{}: {}", tried.empty() ? "" : ", ", name, *name == '\0' ? "" : "=",
                         printable(path), reason());
  }
  fail<ConfigError>(
      "there is no folder where ranks can meet ({}); set TMPDIR to one that this user may write to",
      tried);
}

// Of the whole file, from the begin.
flock whole_file() {
  flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Whether it is there: a rank 0 that ends removes it at any moment. ConfigError where others may
// enter it.
bool is_private_folder(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) {
    return false;
  }
  check<ConfigError>(
      S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 07777) == 0700,
      "{}: must be a folder of this user that no other may enter (mode 700): ranks "
      "would meet strangers there; remove it, or set TMPDIR to another folder",
      path.native());
  return true;
}

bool is_same_file(int descriptor, const std::filesystem::path& path) {
  struct stat mine {};
  struct stat there {};
  return ::fstat(descriptor, &mine) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

// Nothing while rank 0 is not there.
std::optional<store::Secret> read_token(const std::filesystem::path& folder) {
  const Descriptor lock(::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  flock held = whole_file();
  // What a dead rank 0 has left is not locked.
  if (!lock.is_open() || ::fcntl(lock.number(), F_OFD_GETLK, &held) != 0 ||
      held.l_type == F_UNLCK || !is_private_folder(folder)) {
    return std::nullopt;
  }
  const Descriptor file(::open((folder / "token").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) {
    return std::nullopt;
  }
  struct stat status {};
  check<ConfigError>(::fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode) &&
                         status.st_uid == ::geteuid() && (status.st_mode & 07777) == 0600,
                     "{}: must be a file of this user that no other may read (mode 600)",
                     (folder / "token").native());
  std::array<char, store::Secret::kBytes> bytes{};
  if (::read(file.number(), bytes.data(), bytes.size()) != ssize_t{bytes.size()}) {
    return std::nullopt;
  }
  return store::Secret::from_bytes({bytes.data(), bytes.size()});
}

}  // namespace

std::filesystem::path meeting_folder(const Membership& membership, const Lookup& lookup) {
  return base_folder(lookup) / fmt::format("fsdptrain-{}-{}-{}", ::geteuid(),
                                           path_word(membership.job_id),
                                           path_word(membership.port));
}

MeetingFolder::MeetingFolder(std::filesystem::path path) : path_(std::move(path)) {
  const std::string lock_path = (path_ / "lock").native();
  const Deadline deadline(monotonic_clock(), std::chrono::seconds(5));
  while (true) {
    const bool is_made = ::mkdir(path_.c_str(), 0700) == 0;
    check<ConfigError>(is_made || errno == EEXIST,
                       "{}: the folder where ranks meet cannot be made: {}; set TMPDIR to one that "
                       "this user may write to",
                       path_.native(), reason());
    if (!is_private_folder(path_)) {
      continue;
    }
    Descriptor opened(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    check<ConfigError>(opened.is_open() || errno == ENOENT, "{}: cannot be made: {}", lock_path,
                       reason());
    lock_ = std::move(opened);
    flock lock = whole_file();
    // Whoever removed the folder meanwhile has removed what is locked here.
    if (lock_.is_open() && ::fcntl(lock_.number(), F_OFD_SETLK, &lock) == 0 &&
        is_same_file(lock_.number(), lock_path)) {
      break;
    }
    check<ConfigError>(!deadline.passed(),
                       "{}: another rank 0 of the same job is waiting for its ranks there: give "
                       "each job of this host a MASTER_PORT of its own",
                       path_.native());
    std::this_thread::sleep_for(kPause);
  }
  ::unlink((path_ / "token").c_str());
  ::unlink((path_ / "store").c_str());
}

MeetingFolder::~MeetingFolder() {
  for (const char* name : {"token", "token.new", "store", "lock"}) {
    ::unlink((path_ / name).c_str());
  }
  ::rmdir(path_.c_str());
}

std::unique_ptr<store::Listener> MeetingFolder::listen() const {
  return store::listen_unix(path_ / "store");
}

void MeetingFolder::publish(const store::Secret& token) const {
  const std::filesystem::path unfinished = path_ / "token.new";
  ::unlink(unfinished.c_str());
  const Descriptor file(
      ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string_view bytes = token.bytes();
  const bool is_written =
      file.is_open() && ::fchmod(file.number(), 0600) == 0 &&
      ::write(file.number(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
      ::rename(unfinished.c_str(), (path_ / "token").c_str()) == 0;
  check<IoError>(is_written, "{}: writing the token of the job failed: {}", path_.native(),
                 reason());
}

Meet come_to(const std::filesystem::path& folder, const Deadline& deadline,
             const std::function<void()>& check_stop) {
  while (true) {
    if (check_stop) {
      check_stop();
    }
    const std::optional<store::Secret> token =
        is_private_folder(folder) ? read_token(folder) : std::nullopt;
    if (token) {
      // It listened before it wrote the token, and may be gone by now.
      try {
        return {*token, store::connect_unix(folder / "store", monotonic_clock(), kPause)};
      } catch (const TimeoutError&) {
        check<TimeoutError>(!deadline.passed(), "{}: rank 0 does not answer there after {}",
                            folder.native(), to_string(deadline.timeout()));
      }
    }
    check<TimeoutError>(!deadline.passed(),
                        "{}: no rank 0 has come there after {}: is it running, on this host, with "
                        "the same MASTER_PORT and TMPDIR?",
                        folder.native(), to_string(deadline.timeout()));
    std::this_thread::sleep_for(kPause);
  }
}

Descriptor open_memory_of_rank_0(const std::string& path, const std::function<void()>& expect_end) {
  Descriptor memory(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!memory.is_open()) {
    const std::string why = reason();
    // Of a process that ends, its files are the first to go.
    expect_end();
    fail<ConfigError>(
        "{}, the memory of rank 0, cannot be opened: {}; ranks of one host must see each other's "
        "processes",
        printable(path), why);
  }
  return memory;
}

}  // namespace fsdptrain::comm
