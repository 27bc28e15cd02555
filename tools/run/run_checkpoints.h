#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/io/file_system.h"
#include "checkpoint/save/saver.h"
#include "comm/world.h"
#include "tools/config/config.h"
#include "tools/run/reporter.h"
#include "tools/stopwatch.h"

namespace fsdptrain::tools {

// Whether training goes on while checkpoints are written, from a copy of them in host memory. One
// that ends the run is waited for.
bool copies_to_save(const CheckpointConfig& config);

// When a run saves checkpoints, and what one that cannot be written does to it: [checkpoint]. All
// ranks call the same.
class RunCheckpoints {
 public:
  struct Options {
    CheckpointConfig config;
    // Where checkpoints go, the same on all ranks; none: nothing is saved.
    std::optional<std::filesystem::path> folder;
    // The step that the run went on from, whose checkpoint stays.
    std::optional<std::int64_t> resumed_from;
    // On rank 0: throws where this process has lost the run's folder.
    std::function<void()> check_lock = {};
  };
  // What ranks agree on between two steps.
  struct Boundary {
    // That any of them has seen, or 0.
    int signal = 0;
    // Whether a checkpoint is due.
    bool is_due = false;
  };

  // All arguments outlive it, and so does what the state points to.
  RunCheckpoints(checkpoint::FileSystem& files, comm::World& world,
                 const checkpoint::TrainingState& state, Options options, Reporter& reporter);

  // At every step boundary, with the signal that this rank has seen: one message. Takes note of the
  // checkpoint under way: IoError, the same on all ranks, where it has failed and that is to end
  // the run.
  Boundary meet(int signal, std::int64_t steps_done);
  // Begins a checkpoint, and waits for it where [checkpoint] says so. IoError as above.
  void save(std::int64_t steps_done);
  // The run ends: waits until the checkpoint of this step is there. Whether it is; IoError as
  // above, and also where it comes to no more steps and the checkpoint to be: it could not go on
  // from its end.
  bool save_last(std::int64_t steps_done, bool has_come_to_its_end);

 private:
  bool is_due(std::int64_t steps_done) const;
  // Runs what may end with a failed checkpoint.
  template <class Action>
  void attempt(const Action& action, bool must_succeed = false);
  // Error, which ends all ranks, where another process has the run's folder.
  void check_lock() const;
  void note(std::int64_t step);
  // Waits for the one under way.
  void finish();

  comm::World& world_;
  Options options_;
  Reporter& reporter_;
  std::unique_ptr<checkpoint::Saver> saver_;
  // Since the last one began.
  Stopwatch since_;
  std::int64_t failed_in_a_row_ = 0;
  // Of the last one that is there.
  std::optional<std::int64_t> saved_step_;
};

}  // namespace fsdptrain::tools
