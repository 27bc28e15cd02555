#include "checkpoint/io/file_system.h"

#include <fmt/format.h>
#include <utility>

#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {

void ReadableFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t count = read_some(offset + done, out.subspan(done));
    if (count == 0) {
      fail<DataError>(
          "{}: {} bytes from byte {} on are asked for, but the file ends at byte {}; it had {} "
          "when it was opened",
          path().string(), out.size(), offset, offset + done, size());
    }
    done += count;
  }
}

void WritableFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  try {
    while (done < bytes.size()) {
      done += write_some(offset + done, bytes.subspan(done));
    }
  } catch (Error& error) {
    error.add_context(fmt::format("{} of {} bytes were written", done, bytes.size()));
    throw;
  }
}

void remove_all(FileSystem& files, const std::filesystem::path& path) {
  const std::optional<EntryKind> kind = files.kind_of(path);
  if (!kind) {
    return;
  }
  if (*kind != EntryKind::Folder) {
    files.remove_file(path);
    return;
  }
  // Folders yet to be looked into, then all of them, the outer ones first: no recursion, so that a
  // deep tree is no deep stack.
  std::vector<std::filesystem::path> folders = {path};
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const std::filesystem::path folder = folders[i];
    for (const FolderEntry& entry : files.list(folder)) {
      if (entry.kind == EntryKind::Folder) {
        folders.push_back(folder / entry.name);
      } else {
        files.remove_file(folder / entry.name);
      }
    }
  }
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    files.remove_folder(*folder);
  }
}

std::string read_text(FileSystem& files, const std::filesystem::path& path,
                      std::uint64_t max_nbytes) {
  const std::unique_ptr<ReadableFile> file = files.open(path);
  check<DataError>(file->size() <= max_nbytes, "{}: it may have {} bytes at most, got {}",
                   path.string(), max_nbytes, file->size());
  std::string text(file->size(), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_new(FileSystem& files, const std::filesystem::path& path, std::string_view text) {
  const std::unique_ptr<WritableFile> file = files.create(path);
  file->write_at(0, std::as_bytes(std::span(text)));
  file->sync();
  file->close();
}

void replace_text(FileSystem& files, const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path unfinished = path;
  unfinished += ".new";
  // Of a writer that was killed.
  remove_all(files, unfinished);
  write_new(files, unfinished, text);
  files.rename(unfinished, path);
  files.sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

}  // namespace fsdptrain::checkpoint
