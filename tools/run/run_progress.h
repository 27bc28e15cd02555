#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "checkpoint/format/manifest.h"
#include "checkpoint/state/stateful.h"
#include "runtime/data/token_header.h"
#include "tools/config/config.h"
#include "tools/train/weights.h"

// What a run knows beside its tensors, and a checkpoint must hold for it to go on.
namespace fsdptrain::tools {

// The names of objects in a checkpoint.
inline constexpr const char* kSavedConfig = "configuration";
inline constexpr const char* kSavedProgress = "progress";
inline constexpr const char* kSavedVocabulary = "vocabulary";

// The same on all ranks.
struct RunProgress {
  // Where training is in its data: the global number of the next sample, and tokens so far.
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  // Of the last step: what the schedule gave.
  double lr = 0;
  // The lowest validation loss, and behind how many steps; none before the first.
  std::optional<double> best_loss;
  std::int64_t best_step = 0;
  // Behind how many steps the model was validated last.
  std::int64_t validated_step = 0;
  // Updates skipped in a row (train.non_finite).
  std::int64_t skipped_in_a_row = 0;

  friend bool operator==(const RunProgress&, const RunProgress&) = default;
};

// It as an object of a checkpoint; DataError for one that is damaged.
class SavedProgress final : public checkpoint::Stateful {
 public:
  // `progress` outlives it.
  explicit SavedProgress(RunProgress& progress) : progress_(progress) {}

  nlohmann::json state() const override;
  void load(const nlohmann::json& state) override;

 private:
  RunProgress& progress_;
};

// The configuration, which a checkpoint that is loaded must have been made with.
class SavedConfig final : public checkpoint::Stateful {
 public:
  // Hashes of the numerics that the run has had so far; `config` is its latest.
  SavedConfig(const Config& config, std::set<std::string> accepted)
      : config_(config), accepted_(std::move(accepted)) {}

  nlohmann::json state() const override;
  // ConfigError for a checkpoint of another run.
  void load(const nlohmann::json& state) override;
  // Whether what was loaded has an average of weights.
  bool has_average() const { return has_average_; }

 private:
  const Config& config_;
  std::set<std::string> accepted_;
  bool has_average_ = false;
};

// What tokens the model was trained on: for who makes weights of a checkpoint. A run knows it from
// its data.
class SavedVocabulary final : public checkpoint::Stateful {
 public:
  explicit SavedVocabulary(data::Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  nlohmann::json state() const override;
  void load(const nlohmann::json& /*state*/) override {}

 private:
  data::Vocabulary vocabulary_;
};

// What weights that are made of a checkpoint are used with; none where a program saved it that
// has no such objects. DataError for those that are damaged.
std::optional<WeightsInfo> saved_weights_info(const checkpoint::Manifest& manifest);

}  // namespace fsdptrain::tools
