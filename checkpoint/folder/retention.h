#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/io/file_system.h"

// Which checkpoints stay.
namespace fsdptrain::checkpoint {

struct Retention {
  // That many of the newest valid ones; 0: all.
  std::int64_t keep_last = 2;
  // Later ones are neither counted nor removed: what a run has committed stays, whatever lies there
  // of a time that it has gone back behind.
  std::optional<std::int64_t> newest = {};
  // These as well, such as the one that the run was resumed from.
  std::set<std::int64_t> keep_steps = {};
};

// Of valid ones, newest first. The newest always stays.
std::vector<std::int64_t> steps_to_remove(std::span<const std::int64_t> valid,
                                          const Retention& retention);

// Removes them, each out of sight first. What is not valid, or no checkpoint, is neither counted
// nor removed. What goes wrong is returned as text, since the run needs none of it.
std::vector<std::string> remove_old(FileSystem& files, const std::filesystem::path& folder,
                                    const Retention& retention);

// One checkpoint, whether valid or not; an attempt names it in the trash.
void remove_checkpoint(FileSystem& files, const std::filesystem::path& folder, std::int64_t step,
                       const std::string& attempt);

}  // namespace fsdptrain::checkpoint
