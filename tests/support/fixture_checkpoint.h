#pragma once

#include <filesystem>
#include <functional>

#include "checkpoint/folder/scan.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/load/reader.h"
#include "tests/support/format_fixture.h"
#include "tests/support/memory_files.h"

// The fixture of the format in memory, also with a manifest that says something else.
namespace fsdptrain::testing {

class FixtureCheckpoint {
 public:
  FixtureCheckpoint() { write_fixture(files, "/"); }
  explicit FixtureCheckpoint(const std::function<void(checkpoint::Manifest&)>& change)
      : FixtureCheckpoint() {
    checkpoint::Manifest manifest = look().manifest;
    change(manifest);
    checkpoint::replace_text(files, folder / checkpoint::kManifestName,
                             checkpoint::render_manifest(manifest));
  }

  checkpoint::ValidCheckpoint look() { return checkpoint::look_at(files, folder); }
  checkpoint::CheckpointReader open() { return checkpoint::CheckpointReader::open(files, folder); }

  MemoryFiles files;
  const std::filesystem::path folder = std::filesystem::path("/") / kFixtureFolder;
};

}  // namespace fsdptrain::testing
