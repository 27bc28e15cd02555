#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/io/file_system.h"

// How a checkpoint appears, and how it disappears: each in one step, whatever happens in between.
// One process at a time does this to a folder: who has the lock of the run, rank 0.
namespace fsdptrain::checkpoint {

// A file in a staging folder that holds the attempt, by which ranks see that they see the same.
inline constexpr std::string_view kNonceName = "attempt";

// Makes what is missing of the folder, and a staging folder in it for a new attempt, with its
// nonce.
std::filesystem::path make_staging(FileSystem& files, const std::filesystem::path& folder,
                                   std::int64_t step, std::string_view attempt);

// The staging folder, in which every file has reached the device, becomes step-N: that is when the
// checkpoint exists, and when this returns it survives a loss of power. What was there under the
// name is moved to the trash first and removed behind it. Returns the checkpoint's path.
std::filesystem::path commit_staging(FileSystem& files, const std::filesystem::path& folder,
                                     std::int64_t step, std::string_view attempt);

// Moves a staging folder to the trash and removes it; nothing where there is none. Where a commit
// had moved away what it was to replace, it is carried out instead.
void discard_staging(FileSystem& files, const std::filesystem::path& folder, std::int64_t step,
                     std::string_view attempt);

// "latest" says that this is the newest.
void write_latest(FileSystem& files, const std::filesystem::path& folder, std::int64_t step);

// What attempts have left that came to no end: their staging and trash are removed, and where a
// checkpoint was about to be replaced, what replaces it gets its name. Only names that attempts
// give. For a new owner of the lock. What cannot be removed is returned as text.
std::vector<std::string> sweep(FileSystem& files, const std::filesystem::path& folder);

}  // namespace fsdptrain::checkpoint
