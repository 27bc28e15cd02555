#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/io/file_system.h"

// The names in a folder of checkpoints (FORMAT.md):
//
//   step-00000020/                a checkpoint
//   latest                        the name of the newest, for people: nothing is decided by it
//   .staging/20.<attempt>/        one that is being written
//   .staging/20.<attempt>.replacing/   one that is complete and replaces a checkpoint of its step
//   .trash/<name>.<attempt>/      one that is being removed
//   step-00000020.aside.<attempt>  what was no checkpoint, and had the name of one
//
// All else is foreign: neither read nor removed.
namespace fsdptrain::checkpoint {

inline constexpr std::string_view kStagingFolder = ".staging";
inline constexpr std::string_view kTrashFolder = ".trash";
inline constexpr std::string_view kLatestName = "latest";
// In a checkpoint, of the file of each rank: "rank-00003.safetensors".
inline constexpr std::string_view kRankFilePrefix = "rank-";

// "step-00000020": eight digits, more where it takes them.
std::string step_folder_name(std::int64_t step);
// Of a name as above and no other: what has anything around it, or is spelt in another way, has
// none.
std::optional<std::int64_t> step_of(std::string_view name);

// 32 hexadecimal digits that nobody else has.
std::string make_attempt();
bool is_attempt(std::string_view text);
// "20.<attempt>"
std::string staging_name(std::int64_t step, std::string_view attempt);
// Of a name as above and no other, of any attempt.
std::optional<std::int64_t> step_of_staging(std::string_view name);

// The steps of all that is named as a checkpoint, links too, valid or not, newest first. Empty: no
// folder; one that cannot be listed is an IoError, since "none" would begin a run anew.
std::vector<std::int64_t> list_steps(FileSystem& files, const std::filesystem::path& folder);

}  // namespace fsdptrain::checkpoint
