#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "comm/world.h"
#include "tools/run/reporter.h"
#include "tools/train/datasets.h"
#include "tools/train/training_rank.h"

namespace fsdptrain::tools {

// What a run finds out about its model behind a step: the loss over the tokens held back, and what
// it makes of eval.prompts. Changes nothing that training sees. The arguments outlive this object;
// all ranks call the same.
class Validation {
 public:
  Validation(TrainingRank& rank, const Datasets& datasets, comm::World& world, Reporter& reporter)
      : rank_(rank), datasets_(datasets), world_(world), reporter_(reporter) {}

  // The mean loss, reported where it is finite; none where there is nothing to validate on.
  // The same on all ranks.
  std::optional<double> loss(std::int64_t steps_done);
  // Until `stops` says so, the same on all ranks.
  void samples(std::int64_t steps_done, const std::function<bool()>& stops);

 private:
  TrainingRank& rank_;
  const Datasets& datasets_;
  comm::World& world_;
  Reporter& reporter_;
};

}  // namespace fsdptrain::tools
