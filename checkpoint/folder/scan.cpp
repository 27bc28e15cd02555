#include "checkpoint/folder/scan.h"

#include <fmt/format.h>

#include "checkpoint/folder/names.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {

ValidCheckpoint look_at(FileSystem& files, const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kManifestName;
  ValidCheckpoint found{.folder = checkpoint,
                        .manifest_text = read_text(files, path, kMaxManifestBytes),
                        .manifest = {}};
  found.manifest = parse_manifest(path.string(), found.manifest_text);
  for (const SavedFile& file : found.manifest.files) {
    const std::uint64_t nbytes = files.open(checkpoint / file.name)->size();
    check<DataError>(nbytes == file.facts.nbytes, "{}: it has {} bytes, and {} in the manifest",
                     (checkpoint / file.name).string(), nbytes, file.facts.nbytes);
  }
  return found;
}

ValidCheckpoint look_at_step(FileSystem& files, const std::filesystem::path& folder,
                             std::int64_t step) {
  const std::filesystem::path path = folder / step_folder_name(step);
  // What it leads to may be of another run, and change.
  check<DataError>(files.kind_of(path) != EntryKind::Other,
                   "{}: is a link, which is not followed: move the folder itself here",
                   path.string());
  ValidCheckpoint found = look_at(files, path);
  check<DataError>(found.manifest.step == step, "{}: its manifest is of step {}",
                   found.folder.string(), found.manifest.step);
  return found;
}

Scan scan(FileSystem& files, const std::filesystem::path& folder) {
  Scan scan;
  for (const std::int64_t step : list_steps(files, folder)) {
    try {
      look_at_step(files, folder, step);
      scan.valid.push_back(step);
    } catch (const DataError& defect) {
      scan.invalid.push_back(fmt::format("{}: {}", step_folder_name(step), defect.what()));
    }
  }
  return scan;
}

}  // namespace fsdptrain::checkpoint
