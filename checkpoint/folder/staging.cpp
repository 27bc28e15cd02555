#include "checkpoint/folder/staging.h"

#include <fmt/format.h>
#include <optional>
#include <span>

#include "checkpoint/folder/names.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {
namespace {

using std::filesystem::path;

// Behind the name in the trash of what comes back unless its replacement has come.
constexpr std::string_view kReplaced = ".replaced";

void make_durable_folder(FileSystem& files, const path& folder) {
  if (files.make_folder(folder)) {
    files.sync_folder(folder.has_parent_path() ? folder.parent_path() : path("."));
  }
}

// "<name>.<attempt>", with or without what says that it is replaced.
struct TrashName {
  std::string_view name;
  bool replaced = false;
};
std::optional<TrashName> parse_trash_name(std::string_view text) {
  TrashName parsed;
  parsed.replaced = text.ends_with(kReplaced);
  if (parsed.replaced) {
    text.remove_suffix(kReplaced.size());
  }
  const std::size_t dot = text.rfind('.');
  if (dot == std::string_view::npos || !is_attempt(text.substr(dot + 1))) {
    return std::nullopt;
  }
  parsed.name = text.substr(0, dot);
  return parsed;
}

// Nothing where there is none of them.
std::vector<FolderEntry> list_if_there(FileSystem& files, const path& folder) {
  return files.kind_of(folder) == EntryKind::Folder ? files.list(folder)
                                                    : std::vector<FolderEntry>();
}

// After a loss of power a folder that was renamed may be there under both names: what is in one is
// in the other, and must not be removed.
bool are_one(FileSystem& files, const path& a, const path& b) {
  try {
    return read_text(files, a / kManifestName, kMaxManifestBytes) ==
           read_text(files, b / kManifestName, kMaxManifestBytes);
  } catch (const DataError&) {
    return false;
  }
}

void remove_trash(FileSystem& files, const path& folder, const FolderEntry& entry) {
  const path trashed = folder / kTrashFolder / entry.name;
  const std::optional<TrashName> name = parse_trash_name(entry.name);
  if (!name) {
    return;
  }
  const path original = folder / name->name;
  if (name->replaced && step_of(name->name) && !files.kind_of(original)) {
    files.rename(trashed, original);
    files.sync_folder(folder);
    return;
  }
  if (!are_one(files, trashed, original)) {
    remove_all(files, trashed);
  }
}

void remove_staging(FileSystem& files, const path& folder, const FolderEntry& entry) {
  const path staging = folder / kStagingFolder / entry.name;
  const std::optional<std::int64_t> step = step_of_staging(entry.name);
  if (step && entry.kind == EntryKind::Folder &&
      !are_one(files, staging, folder / step_folder_name(*step))) {
    files.make_folder(folder / kTrashFolder);
    files.rename(staging, folder / kTrashFolder / entry.name);
    remove_all(files, folder / kTrashFolder / entry.name);
  }
}

}  // namespace

path make_staging(FileSystem& files, const path& folder, std::int64_t step,
                  std::string_view attempt) {
  make_durable_folder(files, folder);
  files.make_folder(folder / kStagingFolder);
  path staging = folder / kStagingFolder / staging_name(step, attempt);
  check<IoError>(files.make_folder(staging), "{}: is there already", staging.string());
  const auto nonce = files.create(staging / kNonceName);
  nonce->write_at(0, std::as_bytes(std::span(attempt)));
  nonce->sync();
  nonce->close();
  return staging;
}

path commit_staging(FileSystem& files, const path& folder, std::int64_t step,
                    std::string_view attempt) {
  const path staging = folder / kStagingFolder / staging_name(step, attempt);
  const path checkpoint = folder / step_folder_name(step);
  files.remove_file(staging / kNonceName);
  files.sync_folder(staging);
  std::optional<path> replaced;
  if (files.kind_of(checkpoint)) {
    files.make_folder(folder / kTrashFolder);
    replaced =
        folder / kTrashFolder / fmt::format("{}.{}{}", step_folder_name(step), attempt, kReplaced);
    files.rename(checkpoint, *replaced);
    files.sync_folder(folder / kTrashFolder);
    files.sync_folder(folder);
  }
  files.rename(staging, checkpoint);
  files.sync_folder(folder);
  files.sync_folder(folder / kStagingFolder);
  if (replaced) {
    remove_all(files, *replaced);
  }
  return checkpoint;
}

void discard_staging(FileSystem& files, const path& folder, std::int64_t step,
                     std::string_view attempt) {
  const path staging = folder / kStagingFolder / staging_name(step, attempt);
  if (!files.kind_of(staging)) {
    return;
  }
  files.make_folder(folder / kTrashFolder);
  const path trashed = folder / kTrashFolder / staging.filename();
  files.rename(staging, trashed);
  remove_all(files, trashed);
}

void write_latest(FileSystem& files, const path& folder, std::int64_t step) {
  replace_text(files, folder / kLatestName, step_folder_name(step) + "\n");
}

std::vector<std::string> sweep(FileSystem& files, const path& folder) {
  std::vector<std::string> problems;
  const auto try_to = [&problems](const auto& remove) {
    try {
      remove();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  };
  for (const FolderEntry& entry : list_if_there(files, folder / kTrashFolder)) {
    try_to([&] { remove_trash(files, folder, entry); });
  }
  for (const FolderEntry& entry : list_if_there(files, folder / kStagingFolder)) {
    try_to([&] { remove_staging(files, folder, entry); });
  }
  return problems;
}

}  // namespace fsdptrain::checkpoint
