#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "comm/world.h"
#include "runtime/data/token_header.h"
#include "runtime/optim/weight_average.h"
#include "shard/sharded_model.h"
#include "tools/config/config.h"
#include "tools/run/run_folder.h"
#include "tools/train/training_rank.h"

// weights.safetensors and weights_ema.safetensors of a run (docs/formats.md): all parameters by
// name, in the dtype that they are kept in, and as metadata what it takes to use them.
namespace fsdptrain::tools {

struct WeightsInfo {
  // The resolved configuration that they were trained with.
  Config config;
  // Of the tokens that they were trained on.
  data::Vocabulary vocabulary;
};

// For the header of a file of weights.
std::map<std::string, std::string> weights_metadata(const WeightsInfo& info);

// The parameters, or, where there is one, their average. Collective over the ranks of the world, of
// which rank 0 has a path and writes, with one parameter at a time in its memory. The file appears
// under its name only when it is complete; where a write fails an older one stays, and all ranks,
// having come to the end of it, throw that error.
void save_weights(const std::optional<std::filesystem::path>& path, comm::World& world,
                  shard::ShardedModel& model, const WeightsInfo& info,
                  optim::WeightAverage* average = nullptr);

// The weights files of a run, which this rank writes where it has the folder: the parameters, and
// their average if there is one. All ranks come to the end of both; then all throw the first
// failure; where another process has the folder, an IoError before anything is written.
void save_run_weights(const RunFolder* folder, comm::World& world, TrainingRank& rank,
                      const data::Vocabulary& vocabulary);

// DataError naming what the metadata lack.
WeightsInfo read_weights_info(const std::filesystem::path& path);

// DataError naming a parameter that holds a value that is not finite, as `path` has it. Collective
// over the ranks of the model.
void check_finite(const std::filesystem::path& path, shard::ShardedModel& model);

// Of any safetensors file, metadata or not: every parameter must be there with its shape, as
// float32, bfloat16 or float16, and nothing else. Values are converted to the parameter's dtype.
// DataError listing what is missing, extra or misfitting, before any value is changed; and one for
// values that are not finite. Collective over the ranks of the model, each of which reads its part.
void load_weights(const std::filesystem::path& path, shard::ShardedModel& model);

}  // namespace fsdptrain::tools
