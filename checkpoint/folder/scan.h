#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/io/file_system.h"

// Which checkpoints of a folder are valid, by what is cheap to look at: the manifest, and that each
// file is there with its size. Whether the bytes are right is seen when they are read.
namespace fsdptrain::checkpoint {

struct ValidCheckpoint {
  std::filesystem::path folder;
  // As it was read, for others to parse.
  std::string manifest_text;
  Manifest manifest;
};

// DataError saying why it is not valid. What the system refuses is an IoError: then nothing is
// known.
ValidCheckpoint look_at(FileSystem& files, const std::filesystem::path& checkpoint);
// The same of step-N in a folder, whose manifest must be of that step.
ValidCheckpoint look_at_step(FileSystem& files, const std::filesystem::path& folder,
                             std::int64_t step);

struct Scan {
  // Newest first.
  std::vector<std::int64_t> valid;
  // Why others are not: "step-00000020: ...".
  std::vector<std::string> invalid;
};
Scan scan(FileSystem& files, const std::filesystem::path& folder);

}  // namespace fsdptrain::checkpoint
