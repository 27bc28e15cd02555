#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/io/file_system.h"

// A file system around another one that fails at a chosen call, or moves few bytes at a time.
namespace fsdptrain::testing {

enum class FileCall : std::uint8_t {
  Open,
  Create,
  MakeFolder,
  List,
  KindOf,
  Rename,
  RemoveFile,
  RemoveFolder,
  SyncFolder,
  Read,
  Write,
  BeginSync,
  Sync,
  Close,
};

const char* name_of(FileCall call);

// The process is dead: no Error of the library, so that nothing that handles errors handles it.
class Killed : public std::exception {
 public:
  const char* what() const noexcept override { return "killed by the test"; }
};

struct FileFault {
  enum class Kind : std::uint8_t {
    None,
    // The call and all later ones throw Killed, of whatever kind; a write has written its first
    // half by then.
    Kill,
    // The call fails with `error`, an errno; `lasts`: so do all later ones that count. Hints, and
    // questions for free bytes, never fail.
    Errno,
  };
  Kind kind = Kind::None;
  // Of the calls that count, from 0.
  std::int64_t at_call = 0;
  int error = 0;
  bool lasts = false;
  // Which calls count; none: all.
  std::function<bool(FileCall call, const std::filesystem::path& path)> counts;
  // Of one read or write: 0 for no limit.
  std::size_t max_transfer = 0;
};

// Threads may call at the same time. Files that it opened may outlive it, `files` must outlive
// both.
class FaultyFiles final : public checkpoint::FileSystem {
 public:
  explicit FaultyFiles(checkpoint::FileSystem& files, FileFault fault = {});

  std::unique_ptr<checkpoint::ReadableFile> open(const std::filesystem::path& path) override;
  std::unique_ptr<checkpoint::WritableFile> create(const std::filesystem::path& path) override;
  bool make_folder(const std::filesystem::path& path) override;
  std::vector<checkpoint::FolderEntry> list(const std::filesystem::path& path) override;
  std::optional<checkpoint::EntryKind> kind_of(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove_file(const std::filesystem::path& path) override;
  void remove_folder(const std::filesystem::path& path) override;
  void sync_folder(const std::filesystem::path& path) override;

  // Of the calls that count.
  std::int64_t num_calls() const;
  // They, in order: "Write /run/rank-00000.safetensors".
  std::vector<std::string> calls() const;
  bool has_struck() const;
  // Of all reads that succeeded.
  std::uint64_t nbytes_read() const;

  // Shared with the files that are open.
  struct State;

 private:
  checkpoint::FileSystem& files_;
  std::shared_ptr<State> state_;
};

}  // namespace fsdptrain::testing
