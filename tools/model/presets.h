#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tools/config/config.h"

namespace fsdptrain::tools {

// All values of model.name; the first of each family is the family's own, whose sizes are keys.
std::vector<std::string_view> model_names();

// "gpt2" or "llama": what a value of model.name belongs to.
std::string_view family_of(std::string_view name);
// The values of model.name of one family.
std::vector<std::string_view> names_of_family(std::string_view family);

// The model of a name that fixes all sizes; nothing for a family's own.
std::optional<ModelConfig> preset_model(std::string_view name);

}  // namespace fsdptrain::tools
