#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "models/common/decoder.h"
#include "runtime/nn/flat_parameters.h"
#include "tools/train/weights.h"

// Weights that a run left, ready to be used: what `eval` and `generate` begin with.
namespace fsdptrain::tools {

struct TrainedModel {
  std::filesystem::path path;
  WeightsInfo info;
  std::unique_ptr<models::Decoder> model;
  // After the model, which outlives it.
  std::unique_ptr<nn::FlatParameters> parameters;
};

// The options --run, --weights and --ema.
struct TrainedModelArguments {
  std::string run;
  std::string weights;
  bool ema = false;

  // Declares the options; this object must outlive the parsing.
  void add_to(CLI::App& app);
  // Needs a bound rank context. DataError for weights that are missing, do not fit the model that
  // they name, or are not finite.
  TrainedModel load() const;
};

}  // namespace fsdptrain::tools
