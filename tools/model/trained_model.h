#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "comm/process_group.h"
#include "models/common/decoder.h"
#include "shard/sharded_model.h"
#include "tools/train/weights.h"

// Weights that a run left, ready to be used: what `eval` and `generate` begin with.
namespace fsdptrain::tools {

struct TrainedModel {
  std::filesystem::path path;
  WeightsInfo info;
  std::unique_ptr<models::Decoder> model;
  // After the model, which outlives it.
  std::unique_ptr<shard::ShardedModel> sharded;
};

// The options --run, --weights and --ema.
struct TrainedModelArguments {
  std::string run;
  std::string weights;
  bool ema = false;

  // Declares the options; this object must outlive the parsing.
  void add_to(CLI::App& app);
  // Shared out over `ranks`, which call it together and outlive the model. DataError for weights
  // that are missing, do not fit the model that they name, or are not finite.
  TrainedModel load(comm::ProcessGroup& ranks) const;
};

}  // namespace fsdptrain::tools
