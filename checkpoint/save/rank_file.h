#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/io/file_system.h"

// The file of one rank.
namespace fsdptrain::checkpoint {

// "rank-00003.safetensors": five digits, more where it takes them.
std::string rank_file_name(std::int64_t file);

struct RankFile {
  std::filesystem::path path;
  std::map<std::string, std::string> metadata;
  std::vector<TensorSpec> specs;
  // Of each.
  std::vector<std::span<const std::byte>> values;
};
// Returns when all has reached the device. `check_goes_on` is called every few megabytes and may
// throw.
FileFacts write_rank_file(FileSystem& files, const RankFile& file,
                          const std::function<void()>& check_goes_on);

}  // namespace fsdptrain::checkpoint
