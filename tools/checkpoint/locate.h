#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/folder/lock.h"
#include "checkpoint/folder/scan.h"
#include "checkpoint/io/file_system.h"
#include "checkpoint/load/reader.h"

// What a path on the command line stands for: a checkpoint, a folder of checkpoints, or the folder
// of a run, which has one.
namespace fsdptrain::tools {

// The folder of checkpoints itself, or the one of a run. DataError where it is neither.
std::filesystem::path find_checkpoints(checkpoint::FileSystem& files,
                                       const std::filesystem::path& path);

// The checkpoint itself, or all of the folder, oldest first, valid or not. DataError where there is
// none.
std::vector<std::filesystem::path> list_checkpoints(checkpoint::FileSystem& files,
                                                    const std::filesystem::path& path);

// The checkpoint itself, or the newest valid one of the folder. DataError saying what is wrong.
checkpoint::CheckpointReader open_checkpoint(checkpoint::FileSystem& files,
                                             const std::filesystem::path& path);

// Calls `read`, which reads values of `source`, the open_checkpoint() of `given`. Those are
// verified only while they are read: where they are damaged and `given` is a folder, the DataError
// names the valid one before it, too.
void naming_one_before(checkpoint::FileSystem& files, const std::filesystem::path& given,
                       const checkpoint::CheckpointReader& source,
                       const std::function<void()>& read);

// What inspect and verify say of a checkpoint: DataError why it is not valid, its name included.
checkpoint::ValidCheckpoint look_at_checkpoint(checkpoint::FileSystem& files,
                                               const std::filesystem::path& path);

// Whoever changes a folder of checkpoints has the locks of the runs that it is of, by whatever
// links and names; none where it is of no run. `given` is either. ConfigError naming the process
// that has one.
std::vector<std::unique_ptr<checkpoint::RunLock>> lock_runs_of(checkpoint::FileSystem& files,
                                                               const std::filesystem::path& given);

// ConfigError where a file or folder would be made inside a checkpoint or the lock of a run.
void check_apart(checkpoint::FileSystem& files, const std::filesystem::path& output);
// The same for what is no checkpoint: nor inside a folder of checkpoints.
void check_apart_from_checkpoints(checkpoint::FileSystem& files,
                                  const std::filesystem::path& output);

}  // namespace fsdptrain::tools
