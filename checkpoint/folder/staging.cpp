#include "checkpoint/folder/staging.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "checkpoint/folder/names.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fsdptrain::checkpoint {
namespace {

using std::filesystem::path;

// Behind the name of a staging folder that is complete and takes the place of a checkpoint: if it
// is not there, the checkpoint is still to become this.
constexpr std::string_view kReplacing = ".replacing";

void make_durable_folder(FileSystem& files, const path& folder) {
  const path parent = folder.has_parent_path() ? folder.parent_path() : path(".");
  if (parent != folder && !files.kind_of(parent)) {
    make_durable_folder(files, parent);
  }
  if (files.make_folder(folder)) {
    files.sync_folder(parent);
  }
}

// "<name>.<attempt>": the name; none for anything else.
std::optional<std::string_view> trashed_name(std::string_view text) {
  const std::size_t dot = text.rfind('.');
  return dot != std::string_view::npos && is_attempt(text.substr(dot + 1))
             ? std::optional(text.substr(0, dot))
             : std::nullopt;
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

// Of our own: what it leads to, were it a link, is somebody else's.
void make_own_folder(FileSystem& files, const path& folder) {
  check<IoError>(files.make_folder(folder) || files.kind_of(folder) == EntryKind::Folder,
                 "{}: is a link or a file, and not the folder that checkpoints need: remove it",
                 folder.string());
}

void move_to_trash(FileSystem& files, const path& folder, const path& moved,
                   const std::string& name) {
  make_own_folder(files, folder / kTrashFolder);
  files.rename(moved, folder / kTrashFolder / name);
}

// Whether a save made it, of which all may be damaged: it has a manifest or files of ranks, or
// nothing that could be lost.
bool is_of_a_save(FileSystem& files, const path& checkpoint) {
  if (files.kind_of(checkpoint) != EntryKind::Folder) {
    return false;
  }
  const std::vector<FolderEntry> entries = files.list(checkpoint);
  return entries.empty() || std::ranges::any_of(entries, [](const FolderEntry& entry) {
           return entry.name == kManifestName || entry.name.starts_with(kRankFilePrefix);
         });
}

// What somebody else put where a checkpoint is to be: nothing of it is lost.
void set_aside(FileSystem& files, const path& folder, const path& found, std::string_view attempt) {
  const path aside = folder / fmt::format("{}.aside.{}", found.filename().string(), attempt);
  files.rename(found, aside);
  log_warning("{}: was no checkpoint, and has made way for one: it is {} now", found.string(),
              aside.string());
}

void remove_trash(FileSystem& files, const path& folder, const FolderEntry& entry) {
  const std::optional<std::string_view> name = trashed_name(entry.name);
  const path trashed = folder / kTrashFolder / entry.name;
  if (name && !are_one(files, trashed, folder / *name)) {
    remove_all(files, trashed);
  }
}

void clear_staging(FileSystem& files, const path& folder, const FolderEntry& entry) {
  std::string_view name = entry.name;
  const bool replaces = name.ends_with(kReplacing);
  name.remove_suffix(replaces ? kReplacing.size() : 0);
  const std::optional<std::int64_t> step = step_of_staging(name);
  if (!step || entry.kind != EntryKind::Folder) {
    return;
  }
  const path staging = folder / kStagingFolder / entry.name;
  const path checkpoint = folder / step_folder_name(*step);
  if (replaces && !files.kind_of(checkpoint)) {
    files.rename(staging, checkpoint);
    files.sync_folder(folder);
  } else if (!are_one(files, staging, checkpoint)) {
    move_to_trash(files, folder, staging, std::string(name));
    remove_all(files, folder / kTrashFolder / name);
  }
}

}  // namespace

path make_staging(FileSystem& files, const path& folder, std::int64_t step,
                  std::string_view attempt) {
  make_durable_folder(files, folder);
  make_own_folder(files, folder / kStagingFolder);
  path staging = folder / kStagingFolder / staging_name(step, attempt);
  check<IoError>(files.make_folder(staging), "{}: is there already", staging.string());
  write_new(files, staging / kNonceName, attempt);
  return staging;
}

path commit_staging(FileSystem& files, const path& folder, std::int64_t step,
                    std::string_view attempt) {
  path staging = folder / kStagingFolder / staging_name(step, attempt);
  path checkpoint = folder / step_folder_name(step);
  files.remove_file(staging / kNonceName);
  files.sync_folder(staging);
  const std::string old_name = fmt::format("{}.{}", step_folder_name(step), attempt);
  bool replaces = files.kind_of(checkpoint).has_value();
  if (replaces && !is_of_a_save(files, checkpoint)) {
    set_aside(files, folder, checkpoint, attempt);
    replaces = false;
  }
  if (replaces) {
    const path ready = staging.string() + std::string(kReplacing);
    files.rename(staging, ready);
    staging = ready;
    files.sync_folder(folder / kStagingFolder);
    move_to_trash(files, folder, checkpoint, old_name);
  }
  files.rename(staging, checkpoint);
  files.sync_folder(folder);
  files.sync_folder(folder / kStagingFolder);
  if (replaces) {
    try {
      remove_all(files, folder / kTrashFolder / old_name);
    } catch (const Error& error) {
      // The new one is there all the same; sweep() removes the old one.
      log_warning("{}", error.what());
    }
  }
  return checkpoint;
}

void discard_staging(FileSystem& files, const path& folder, std::int64_t step,
                     std::string_view attempt) {
  const std::string name = staging_name(step, attempt);
  for (const FolderEntry& entry : list_if_there(files, folder / kStagingFolder)) {
    if (entry.name.starts_with(name)) {
      clear_staging(files, folder, entry);
    }
  }
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
  for (const FolderEntry& entry : list_if_there(files, folder / kStagingFolder)) {
    try_to([&] { clear_staging(files, folder, entry); });
  }
  for (const FolderEntry& entry : list_if_there(files, folder / kTrashFolder)) {
    try_to([&] { remove_trash(files, folder, entry); });
  }
  return problems;
}

}  // namespace fsdptrain::checkpoint
