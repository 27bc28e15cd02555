#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/io/file_system.h"
#include "checkpoint/save/saver.h"
#include "checkpoint/state/training_state.h"
#include "comm/lone_world.h"
#include "tools/bench/copy_roof.h"
#include "tools/config/config.h"
#include "tools/train/training_rank.h"

namespace fsdptrain::tools {

// What a benchmark of checkpoints does, on one rank with a configured model and optimizer, in a
// folder of its own below `folder`, which is removed with it; and beside each thing what it cannot
// do without. Each returns its seconds.
class CheckpointWork {
 public:
  CheckpointWork(const Config& config, const std::filesystem::path& folder);
  CheckpointWork(const CheckpointWork&) = delete;
  CheckpointWork& operator=(const CheckpointWork&) = delete;
  ~CheckpointWork();

  // Of all values.
  std::int64_t nbytes() const { return nbytes_; }
  std::int64_t largest_tensor_nbytes() const { return largest_; }
  // What async saves copy to.
  std::int64_t staging_nbytes() const { return background_->staging_nbytes(); }

  // As many bytes from where the values are into a new file, and to the device.
  double write();
  double save();
  // Between buffers that have been touched.
  double copy();
  // Until training may go on; waits for the rest.
  double stall();
  // Of the file of the last checkpoint, into where the values are and into one small buffer.
  double read();
  double read_through();
  double load();
  double verify();

 private:
  std::filesystem::path file() const;
  std::filesystem::path checkpoint() const;

  comm::LoneWorld alone_;
  TrainingRank rank_;
  std::unique_ptr<checkpoint::FileSystem> files_;
  std::filesystem::path folder_;
  std::unique_ptr<checkpoint::Saver> foreground_;
  std::unique_ptr<checkpoint::Saver> background_;
  std::int64_t nbytes_ = 0;
  std::int64_t largest_ = 0;
  std::int64_t step_ = 0;
  CopyRoof roof_;
  std::vector<std::byte> destination_;
};

}  // namespace fsdptrain::tools
