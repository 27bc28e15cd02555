#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/format/manifest.h"
#include "checkpoint/io/file_system.h"

namespace fsdptrain::checkpoint {

// Writes the manifest of a checkpoint that is about to get its name, and returns when it has
// reached the device. IoError where it would not be read as it is written.
void write_manifest(FileSystem& files, const std::filesystem::path& staging,
                    const Manifest& manifest);

// For the headers of its files.
std::map<std::string, std::string> metadata_of(const Manifest& manifest);

}  // namespace fsdptrain::checkpoint
