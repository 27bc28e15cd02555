#include "tools/checkpoint/locate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "checkpoint/folder/names.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/error.h"
#include "tools/run/run_folder.h"

namespace fsdptrain::tools {

namespace fs = std::filesystem;
using checkpoint::EntryKind;
using checkpoint::FileSystem;

namespace {

bool is_checkpoint(FileSystem& files, const fs::path& path) {
  return checkpoint::step_of(path.filename().native()) ||
         files.kind_of(path / checkpoint::kManifestName);
}

// "runs/x/" is called as "runs/x", "." by its name, and a link by what it leads to.
fs::path named(const fs::path& path) {
  const fs::path whole =
      path.filename() == "." || path.filename() == ".." ? fs::absolute(path) : path;
  const fs::path normal = whole.lexically_normal();
  const fs::path plain =
      normal.has_filename() || !normal.has_relative_path() ? normal : normal.parent_path();
  std::error_code error;
  const fs::path target = fs::is_symlink(plain, error) ? fs::canonical(plain, error) : plain;
  return error ? plain : target;
}

// The folders that a path may be of, each with the one around it: links are followed one by one,
// since a run may have its checkpoints by one.
std::vector<fs::path> folders_on_the_way(const fs::path& given) {
  constexpr int kMaxLinks = 40;
  std::error_code error;
  std::vector<fs::path> folders{fs::weakly_canonical(fs::absolute(given), error)};
  fs::path at = (fs::absolute(given) / "").lexically_normal().parent_path();
  for (int i = 0; i < kMaxLinks; ++i) {
    folders.push_back(at);
    if (!fs::is_symlink(at, error)) {
      break;
    }
    const fs::path target = fs::read_symlink(at, error);
    at = (at.parent_path() / target / "").lexically_normal().parent_path();
  }
  for (std::size_t i = 0, num_given = folders.size(); i < num_given; ++i) {
    folders.push_back(folders[i].parent_path());
  }
  return folders;
}

void check_is_folder(FileSystem& files, const fs::path& path) {
  check<DataError>(
      files.kind_of(path) == EntryKind::Folder,
      "{}: there is no such folder: give a checkpoint, a folder of checkpoints or that "
      "of a run",
      path.string());
}

}  // namespace

fs::path find_checkpoints(FileSystem& files, const fs::path& given) {
  const fs::path path = named(given);
  check_is_folder(files, path);
  const fs::path of_run = named(path / kCheckpointsFolder);
  if (files.kind_of(of_run) == EntryKind::Folder) {
    return of_run;
  }
  check<DataError>(!checkpoint::list_steps(files, path).empty(),
                   "{}: holds no checkpoint: give a folder with step-N in it, or that of a run",
                   path.string());
  return path;
}

std::vector<fs::path> list_checkpoints(FileSystem& files, const fs::path& given) {
  const fs::path path = named(given);
  check_is_folder(files, path);
  if (is_checkpoint(files, path)) {
    return {path};
  }
  const fs::path folder = find_checkpoints(files, path);
  const std::vector<std::int64_t> steps = checkpoint::list_steps(files, folder);
  check<DataError>(!steps.empty(), "{}: holds no checkpoint", folder.string());
  std::vector<fs::path> found;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    found.push_back(folder / checkpoint::step_folder_name(*step));
  }
  return found;
}

checkpoint::ValidCheckpoint look_at_checkpoint(FileSystem& files, const fs::path& path) {
  const std::optional<std::int64_t> step = checkpoint::step_of(path.filename().native());
  return step ? checkpoint::look_at_step(files, path.parent_path(), *step)
              : checkpoint::look_at(files, path);
}

std::vector<std::unique_ptr<checkpoint::RunLock>> lock_runs_of(FileSystem& files,
                                                               const fs::path& given) {
  std::set<fs::path> runs;
  for (const fs::path& start : {given, given / kCheckpointsFolder}) {
    for (const fs::path& folder : folders_on_the_way(start)) {
      if (!folder.empty() && files.kind_of(folder / kRunRecord)) {
        runs.insert(fs::canonical(folder));
      }
    }
  }
  std::vector<std::unique_ptr<checkpoint::RunLock>> locks;
  for (const fs::path& run : runs) {
    locks.push_back(checkpoint::RunLock::acquire(files, run));
  }
  return locks;
}

void check_apart(FileSystem& files, const fs::path& output) {
  for (fs::path folder = fs::weakly_canonical(fs::absolute(output)); folder.has_relative_path();
       folder = folder.parent_path()) {
    const std::string name = folder.filename().string();
    const bool is_lock =
        name == checkpoint::kLockName && files.kind_of(folder.parent_path() / kRunRecord);
    check<ConfigError>(!files.kind_of(folder / checkpoint::kManifestName) && !is_lock &&
                           name != checkpoint::kStagingFolder && name != checkpoint::kTrashFolder,
                       "{}: lies in {}, which is for checkpoints or a lock alone: give another "
                       "place",
                       output.string(), folder.string());
  }
}

void check_apart_from_checkpoints(FileSystem& files, const fs::path& output) {
  check_apart(files, output);
  for (fs::path folder = fs::weakly_canonical(fs::absolute(output)); folder.has_relative_path();
       folder = folder.parent_path()) {
    const fs::path run = folder.parent_path();
    const bool is_of_run =
        folder.filename() == kCheckpointsFolder && files.kind_of(run / kRunRecord);
    const bool has_steps = files.kind_of(folder) == EntryKind::Folder &&
                           !checkpoint::list_steps(files, folder).empty();
    check<ConfigError>(!is_of_run && !has_steps,
                       "{}: lies in {}, a folder of checkpoints: give another place",
                       output.string(), folder.string());
  }
}

checkpoint::CheckpointReader open_checkpoint(FileSystem& files, const fs::path& given) {
  const fs::path path = named(given);
  check_is_folder(files, path);
  if (is_checkpoint(files, path)) {
    return checkpoint::CheckpointReader::open(files, path);
  }
  const fs::path folder = find_checkpoints(files, path);
  const checkpoint::Scan scan = checkpoint::scan(files, folder);
  check<DataError>(
      !scan.valid.empty(), "{}: holds no valid checkpoint: {}", folder.string(),
      scan.invalid.empty() ? "there is none" : fmt::format("{}", fmt::join(scan.invalid, "; ")));
  return checkpoint::CheckpointReader::open(
      files, folder / checkpoint::step_folder_name(scan.valid.front()));
}

void naming_one_before(FileSystem& files, const fs::path& given,
                       const checkpoint::CheckpointReader& source,
                       const std::function<void()>& read) {
  try {
    read();
  } catch (const DataError& error) {
    const std::string name = source.folder().string();
    if (is_checkpoint(files, named(given)) ||
        std::string_view(error.what()).find(name) == std::string_view::npos) {
      throw;
    }
    const fs::path folder = source.folder().parent_path();
    for (const std::int64_t step : checkpoint::scan(files, folder).valid) {
      check<DataError>(step >= source.manifest().step,
                       "{}; {} was the newest: the one before it is {}: give that", error.what(),
                       name, (folder / checkpoint::step_folder_name(step)).string());
    }
    throw;
  }
}

}  // namespace fsdptrain::tools
