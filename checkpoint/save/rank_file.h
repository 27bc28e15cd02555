#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/block_file.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/io/file_system.h"

// The file of one rank.
namespace fsdptrain::checkpoint {

// "rank-00003.safetensors": five digits, more where it takes them.
std::string rank_file_name(std::int64_t file);

// Elements of a plane of a tensor that are in one file: none of them empty.
struct FilePiece {
  std::size_t group = 0;
  std::size_t plane = 0;
  std::size_t tensor = 0;
  // Of the tensor.
  kernels::Range in_tensor;
  // Of the group's buffer.
  kernels::Range in_buffer;
};

// In the order of the file: by group, plane and offset. Of tensors that are cut by ranges.
std::vector<FilePiece> pieces_of_file(const SavedLayout& layout, std::int64_t file);
// The same as the tensors of a file.
std::vector<TensorSpec> specs_of(const SavedLayout& layout, std::span<const FilePiece> pieces);

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
