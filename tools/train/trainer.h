#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/io/file_system.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/state/training_state.h"
#include "comm/init/debug_break.h"
#include "comm/world.h"
#include "runtime/data/loader.h"
#include "runtime/optim/lr_schedule.h"
#include "tools/config/config.h"
#include "tools/run/run_checkpoints.h"
#include "tools/run/run_progress.h"
#include "tools/run/run_report.h"
#include "tools/run/run_start.h"
#include "tools/stop_signals.h"
#include "tools/train/data_parallel.h"
#include "tools/train/datasets.h"
#include "tools/train/non_finite_policy.h"
#include "tools/train/rank_mesh.h"
#include "tools/train/training_rank.h"
#include "tools/train/validation.h"

namespace fsdptrain::tools {

// How a run ended.
struct RunOutcome {
  // That ended it, or 0.
  int signal = 0;
  // Whether a checkpoint of its last step is there.
  bool is_saved = false;
};

// What a rank trains with; it outlives the trainer.
struct Setting {
  const Config& config;
  RunStart start = {};
  const StopSignals& signals;
  // Null on all ranks but 0.
  Account* account = nullptr;
  comm::DebugBreak& debug_break;
  // Whether each rank has processors that it shares with no other.
  bool is_bound = false;
  CompareMemory compare_memory = {};
};

// The course of one run on one rank: its objects, in the order in which they need each other
// (nothing that can refuse the input comes behind the folder, which may move an earlier run away),
// and the loop over steps.
//
// All ranks do the same, with a share of each step; rank 0 alone writes and reports. What decides
// about the course of the run is agreed by all.
class Trainer {
 public:
  // Collective.
  Trainer(const Setting& setting, comm::World& world);

  // Trains until the last step or a signal, saves a checkpoint and writes the weights; these after
  // a failure too, where all ranks know of it. Collective.
  RunOutcome run();

 private:
  // The rest of what can be refused.
  void check_input();
  // Values from the last checkpoint, or those that a run begins with.
  void load(const RunStart& start);
  void load_initial();
  checkpoint::TrainingState state();
  // The run's folder and record.
  void open_account();
  RunOutcome train_all();
  // The signal that any rank has seen, or 0. Collective.
  int agreed_signal();
  // This rank's micro-batches. Where any rank cannot read its own, weights are rescued first.
  // Collective.
  std::vector<data::Batch> read_step(std::uint64_t step);
  void train_one(std::int64_t step);
  bool is_validation_due() const;
  // Loss and samples behind the steps done; the signal that has come by then.
  int validate();
  void write_weights();
  RunOutcome finish(int signal);
  // Does what may end with the same IoError on all ranks; then what was learned is not lost.
  template <class Action>
  auto or_rescue(const Action& action);
  // What was learned before a failure that did not come from the weights. Collective.
  void rescue_weights();
  // All ranks are at the same place, before one of them fails.
  void meet() { world_.control().issue(comm::barrier()).wait(); }

  Config config_;
  const StopSignals& signals_;
  comm::DebugBreak& debug_break_;
  comm::World& world_;
  // Null on all ranks but 0.
  Account* account_;
  std::unique_ptr<checkpoint::FileSystem> files_;
  Datasets datasets_;
  std::vector<DataFile> data_files_;
  data::Loader loader_;
  RankMesh mesh_;
  TrainingRank rank_;
  optim::LrSchedule schedule_;
  DataParallelStep data_parallel_;
  NonFinitePolicy non_finite_;
  RunReport report_;
  Validation validation_;
  RunProgress progress_;
  SavedProgress saved_progress_;
  SavedConfig saved_config_;
  SavedVocabulary saved_vocabulary_;
  // What the run goes on from.
  std::optional<checkpoint::Loaded> loaded_;
  std::optional<RunCheckpoints> checkpoints_;
  std::int64_t steps_done_ = 0;
  // Whether write_weights() has begun.
  bool weights_tried_ = false;
};

}  // namespace fsdptrain::tools
