#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "checkpoint/io/file_system.h"
#include "checkpoint/load/reader.h"

namespace fsdptrain::checkpoint {

// Writes what a checkpoint holds as one of another number of ranks: the same step, tensors and
// replicated objects, in `folder`, which is made where it is missing; returns its path. Loading
// needs none of this: it spares ranks the reading of many files, and many ranks the reading of one.
// Holds a few megabytes. ConfigError where the folder has that step already, or for objects per
// rank, which nobody can share out. `each` gets the bytes that were written, and 0 before each
// file.
std::filesystem::path reshard(FileSystem& files, CheckpointReader& source,
                              const std::filesystem::path& folder, std::int64_t num_ranks,
                              const std::function<void(std::uint64_t nbytes)>& each);

// Bytes of values, all planes together.
std::uint64_t values_nbytes(const SavedLayout& layout);

}  // namespace fsdptrain::checkpoint
