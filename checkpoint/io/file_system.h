#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// All that checkpoints ask of a file system, so that tests can put another in its place: one that
// fails, one that loses power. Plain safetensors files, which exports are, go through
// runtime/base/file.h instead.
namespace fsdptrain::checkpoint {

// An open file to read; closed with the object. Several threads may read at the same time.
class ReadableFile {
 public:
  ReadableFile() = default;
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;
  virtual ~ReadableFile() = default;

  virtual const std::filesystem::path& path() const = 0;
  // Of the file as it was opened.
  virtual std::uint64_t size() const = 0;
  // Fills `out` from `offset` on, however many calls of the system it takes; DataError where the
  // file ends before that, naming it and both sizes.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;

 protected:
  // At least one byte, or 0 at the end of the file.
  virtual std::size_t read_some(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

// A new file. What was written is there for good only behind sync() and FileSystem::sync_folder()
// of its folder. One thread writes.
class WritableFile {
 public:
  WritableFile() = default;
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;
  virtual ~WritableFile() = default;

  virtual const std::filesystem::path& path() const = 0;
  // All bytes, however many calls of the system it takes. IoError naming path, bytes written and
  // wanted, the system's reason, and the free space where that is the reason.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // A hint, as File::begin_sync().
  virtual void begin_sync(std::uint64_t offset, std::uint64_t nbytes) = 0;
  virtual void sync() = 0;
  // Some file systems say only here that they could not write.
  virtual void close() = 0;

 protected:
  // At least one byte.
  virtual std::size_t write_some(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
};

// Other: a link, a device, a pipe. Links are not followed.
enum class EntryKind { File, Folder, Other };

struct FolderEntry {
  std::string name;
  EntryKind kind = EntryKind::Other;
};

// What the system refuses is an IoError with path and reason (PathError where the path is at
// fault). Threads may call at the same time.
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  // DataError where there is nothing, or no regular file.
  virtual std::unique_ptr<ReadableFile> open(const std::filesystem::path& path) = 0;
  // PathError where something is there already.
  virtual std::unique_ptr<WritableFile> create(const std::filesystem::path& path) = 0;
  // False where something is there already. The folder around it must exist.
  virtual bool make_folder(const std::filesystem::path& path) = 0;
  // In the order of names. DataError where there is no folder.
  virtual std::vector<FolderEntry> list(const std::filesystem::path& path) = 0;
  // None where there is nothing.
  virtual std::optional<EntryKind> kind_of(const std::filesystem::path& path) = 0;
  // In one step. A file replaces a file; a folder replaces nothing, not even an empty one
  // (IoError).
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void remove_file(const std::filesystem::path& path) = 0;
  // An empty one.
  virtual void remove_folder(const std::filesystem::path& path) = 0;
  // Returns when the names in it have reached the device.
  virtual void sync_folder(const std::filesystem::path& path) = 0;
};

// That of the system. Without state: any number of them are alike.
std::unique_ptr<FileSystem> make_real_file_system();

// A folder with all that is in it, whatever it is; links are removed, not followed. Nothing where
// there is none.
void remove_all(FileSystem& files, const std::filesystem::path& path);
// The whole of a small file. DataError where it has more than `max_nbytes`.
std::string read_text(FileSystem& files, const std::filesystem::path& path,
                      std::uint64_t max_nbytes);
// A new file. Its bytes have reached the device when it returns, its name only behind
// sync_folder().
void write_new(FileSystem& files, const std::filesystem::path& path, std::string_view text);
// In one step, through `path` with ".new" behind it, which one writer has; both bytes and name have
// reached the device when it returns. Replaces a file that is there.
void replace_text(FileSystem& files, const std::filesystem::path& path, const std::string& text);

}  // namespace fsdptrain::checkpoint
