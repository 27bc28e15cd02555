#include "checkpoint/save/manifest_file.h"

#include <fmt/format.h>
#include <string>

#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {

void write_manifest(FileSystem& files, const std::filesystem::path& staging,
                    const Manifest& manifest) {
  const std::string text = render_manifest(manifest);
  const std::filesystem::path path = staging / kManifestName;
  // Nothing that would not be read gets a name.
  check<IoError>(parse_manifest(path.string(), text) == manifest,
                 "{}: would not be read as it is written", path.string());
  write_new(files, path, text);
}

std::map<std::string, std::string> metadata_of(const Manifest& manifest) {
  return {{"attempt", manifest.attempt}, {"step", fmt::to_string(manifest.step)}};
}

}  // namespace fsdptrain::checkpoint
