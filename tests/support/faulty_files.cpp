#include "tests/support/faulty_files.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace fsdptrain::testing {

namespace fs = std::filesystem;

using checkpoint::EntryKind;
using checkpoint::FileSystem;
using checkpoint::FolderEntry;
using checkpoint::ReadableFile;
using checkpoint::WritableFile;

const char* name_of(FileCall call) {
  switch (call) {
    case FileCall::Open:
      return "Open";
    case FileCall::Create:
      return "Create";
    case FileCall::MakeFolder:
      return "MakeFolder";
    case FileCall::List:
      return "List";
    case FileCall::KindOf:
      return "KindOf";
    case FileCall::Rename:
      return "Rename";
    case FileCall::RemoveFile:
      return "RemoveFile";
    case FileCall::RemoveFolder:
      return "RemoveFolder";
    case FileCall::SyncFolder:
      return "SyncFolder";
    case FileCall::Read:
      return "Read";
    case FileCall::Write:
      return "Write";
    case FileCall::BeginSync:
      return "BeginSync";
    case FileCall::Sync:
      return "Sync";
    case FileCall::Close:
      return "Close";
  }
  return "invalid call";
}

struct FaultyFiles::State {
  explicit State(FileFault chosen) : fault(std::move(chosen)) {}

  const FileFault fault;
  mutable std::mutex mutex;
  std::vector<std::string> calls;
  bool is_dead = false;
  bool has_struck = false;
  std::atomic<std::uint64_t> nbytes_read = 0;

  // Before each call; throws what the fault is. `dying` runs before the death in this very call.
  void enter(FileCall call, const fs::path& path, const std::function<void()>& dying = {});
  std::size_t transfer(std::size_t nbytes) const {
    return fault.max_transfer == 0 ? nbytes : std::min(nbytes, fault.max_transfer);
  }
};

void FaultyFiles::State::enter(FileCall call, const fs::path& path,
                               const std::function<void()>& dying) {
  const std::lock_guard lock(mutex);
  if (is_dead) {
    throw Killed();
  }
  if (fault.counts && !fault.counts(call, path)) {
    return;
  }
  const auto index = static_cast<std::int64_t>(calls.size());
  calls.push_back(fmt::format("{} {}", name_of(call), path.string()));
  const bool strikes = index == fault.at_call || (fault.lasts && index > fault.at_call);
  if (!strikes || fault.kind == FileFault::Kind::None) {
    return;
  }
  if (fault.kind == FileFault::Kind::Kill) {
    has_struck = true;
    is_dead = true;
    if (dying) {
      dying();
    }
    throw Killed();
  }
  if (call != FileCall::BeginSync) {
    has_struck = true;
    fail_path(path, fmt::format("the test's {}", name_of(call)), fault.error);
  }
}

namespace {

using State = FaultyFiles::State;

class FaultyReadableFile final : public ReadableFile {
 public:
  FaultyReadableFile(std::shared_ptr<State> state, std::unique_ptr<ReadableFile> file)
      : state_(std::move(state)), file_(std::move(file)) {}

  const fs::path& path() const override { return file_->path(); }
  std::uint64_t size() const override { return file_->size(); }

 protected:
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    state_->enter(FileCall::Read, path());
    const std::uint64_t left = file_->size() - std::min(file_->size(), offset);
    const std::size_t count = std::min<std::uint64_t>(state_->transfer(out.size()), left);
    file_->read_at(offset, out.first(count));
    state_->nbytes_read += count;
    return count;
  }

 private:
  std::shared_ptr<State> state_;
  std::unique_ptr<ReadableFile> file_;
};

class FaultyWritableFile final : public WritableFile {
 public:
  FaultyWritableFile(std::shared_ptr<State> state, std::unique_ptr<WritableFile> file)
      : state_(std::move(state)), file_(std::move(file)) {}

  const fs::path& path() const override { return file_->path(); }
  void begin_sync(std::uint64_t offset, std::uint64_t nbytes) override {
    state_->enter(FileCall::BeginSync, path());
    file_->begin_sync(offset, nbytes);
  }
  void sync() override {
    state_->enter(FileCall::Sync, path());
    file_->sync();
  }
  void close() override {
    state_->enter(FileCall::Close, path());
    file_->close();
  }

 protected:
  std::size_t write_some(std::uint64_t offset, std::span<const std::byte> bytes) override {
    state_->enter(FileCall::Write, path(),
                  [&] { file_->write_at(offset, bytes.first(bytes.size() / 2)); });
    const std::size_t count = state_->transfer(bytes.size());
    file_->write_at(offset, bytes.first(count));
    return count;
  }

 private:
  std::shared_ptr<State> state_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace

FaultyFiles::FaultyFiles(FileSystem& files, FileFault fault)
    : files_(files), state_(std::make_shared<State>(std::move(fault))) {}

std::unique_ptr<ReadableFile> FaultyFiles::open(const fs::path& path) {
  state_->enter(FileCall::Open, path);
  return std::make_unique<FaultyReadableFile>(state_, files_.open(path));
}

std::unique_ptr<WritableFile> FaultyFiles::create(const fs::path& path) {
  state_->enter(FileCall::Create, path);
  return std::make_unique<FaultyWritableFile>(state_, files_.create(path));
}

bool FaultyFiles::make_folder(const fs::path& path) {
  state_->enter(FileCall::MakeFolder, path);
  return files_.make_folder(path);
}

std::vector<FolderEntry> FaultyFiles::list(const fs::path& path) {
  state_->enter(FileCall::List, path);
  return files_.list(path);
}

std::optional<EntryKind> FaultyFiles::kind_of(const fs::path& path) {
  state_->enter(FileCall::KindOf, path);
  return files_.kind_of(path);
}

void FaultyFiles::rename(const fs::path& from, const fs::path& to) {
  state_->enter(FileCall::Rename, to);
  files_.rename(from, to);
}

void FaultyFiles::remove_file(const fs::path& path) {
  state_->enter(FileCall::RemoveFile, path);
  files_.remove_file(path);
}

void FaultyFiles::remove_folder(const fs::path& path) {
  state_->enter(FileCall::RemoveFolder, path);
  files_.remove_folder(path);
}

void FaultyFiles::sync_folder(const fs::path& path) {
  state_->enter(FileCall::SyncFolder, path);
  files_.sync_folder(path);
}

std::int64_t FaultyFiles::num_calls() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<std::int64_t>(state_->calls.size());
}

std::vector<std::string> FaultyFiles::calls() const {
  const std::lock_guard lock(state_->mutex);
  return state_->calls;
}

bool FaultyFiles::has_struck() const {
  const std::lock_guard lock(state_->mutex);
  return state_->has_struck;
}

std::uint64_t FaultyFiles::nbytes_read() const {
  return state_->nbytes_read;
}

}  // namespace fsdptrain::testing
