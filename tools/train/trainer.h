#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/init/debug_break.h"
#include "comm/world.h"
#include "runtime/data/loader.h"
#include "runtime/optim/lr_schedule.h"
#include "tools/config.h"
#include "tools/stop_signals.h"
#include "tools/stopwatch.h"
#include "tools/train/data_parallel.h"
#include "tools/train/datasets.h"
#include "tools/train/non_finite_policy.h"
#include "tools/train/rank_mesh.h"
#include "tools/train/run_folder.h"
#include "tools/train/run_record.h"
#include "tools/train/run_report.h"
#include "tools/train/training_rank.h"
#include "tools/train/validation.h"

namespace fsdptrain::tools {

// What rank 0 keeps of a run beside its trainer. It outlives the ranks: how the run ended is known
// when all of them have.
struct Account {
  std::optional<RunFolder> folder;
  std::optional<RunRecord> record;
  // Since the first step.
  Stopwatch stopwatch;
  std::int64_t steps_done = 0;
};

// What a rank trains with; it outlives the trainer.
struct Setting {
  const Config& config;
  RunFolder::Existing existing = RunFolder::Existing::Refuse;
  const StopSignals& signals;
  // Null on all ranks but 0.
  Account* account = nullptr;
  comm::DebugBreak& debug_break;
  // Whether each rank has processors that it shares with no other.
  bool is_bound = false;
  CompareMemory compare_memory = {};
};

// The course of one run on one rank: its objects, in the order in which they need each other
// (nothing that can refuse the input comes behind the folder, which may replace an earlier run),
// and the loop over steps.
//
// All ranks do the same, with a share of each step; rank 0 alone writes and reports. What decides
// about the course of the run is agreed by all.
class Trainer {
 public:
  // Collective.
  Trainer(const Setting& setting, comm::World& world);

  // Trains until the last step or a signal, and writes the weights, after a failure too where all
  // ranks know of it; the signal that ended the run, or 0. Collective.
  int run();

 private:
  // The rest of what can be refused, the initial weights and the average.
  void check_input();
  // The run's folder and record.
  void open_account(RunFolder::Existing existing);
  int train_all();
  // The signal that any rank has seen, or 0. Collective.
  int agreed_signal();
  // This rank's micro-batches. Where any rank cannot read its own, weights are rescued first.
  // Collective.
  std::vector<data::Batch> read_step(std::uint64_t step);
  void train_one(std::int64_t step);
  // Loss and samples behind the steps done.
  void validate();
  void write_weights();
  void finish(int signal);
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
  std::int64_t steps_done_ = 0;
  // Whether write_weights() has begun.
  bool weights_tried_ = false;
};

}  // namespace fsdptrain::tools
