#pragma once

#include <filesystem>
#include <string>

#include "runtime/nn/flat_parameters.h"
#include "tools/config.h"

// weights.safetensors of a run (docs/formats.md): all parameters by name, in the dtype that the
// optimizer keeps, and as metadata what it takes to use them.
namespace fsdptrain::tools {

struct WeightsInfo {
  // The resolved configuration that they were trained with.
  Config config;
  // Of the token file that they were trained on.
  std::string tokenizer;
};

// The file appears under its name only when it is complete.
void save_weights(const std::filesystem::path& path, const nn::FlatParameters& parameters,
                  const WeightsInfo& info);

// DataError naming what the metadata lack.
WeightsInfo read_weights_info(const std::filesystem::path& path);

// Every parameter must be there with its shape and dtype, and nothing else; DataError listing
// what is missing, extra or misfitting, before any value is changed.
void load_weights(const std::filesystem::path& path, nn::FlatParameters& parameters);

}  // namespace fsdptrain::tools
