#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/data/token_header.h"
#include "runtime/nn/flat_parameters.h"
#include "tools/config.h"

// weights.safetensors and weights_ema.safetensors of a run (docs/formats.md): all parameters by
// name, in the dtype that they are kept in, and as metadata what it takes to use them.
namespace fsdptrain::tools {

struct WeightsInfo {
  // The resolved configuration that they were trained with.
  Config config;
  // Of the tokens that they were trained on.
  data::Vocabulary vocabulary;
};

// The file appears under its name only when it is complete; where that fails, an older one stays.
void save_weights(const std::filesystem::path& path,
                  const std::vector<nn::FlatParameters::Named>& parameters,
                  const WeightsInfo& info);

// DataError naming what the metadata lack.
WeightsInfo read_weights_info(const std::filesystem::path& path);

// Of any safetensors file, metadata or not: every parameter must be there with its shape, as
// float32, bfloat16 or float16, and nothing else. Values are converted to the parameter's dtype.
// DataError listing what is missing, extra or misfitting, before any value is changed; and one for
// values that are not finite.
void load_weights(const std::filesystem::path& path, nn::FlatParameters& parameters);

}  // namespace fsdptrain::tools
