#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tools/config.h"

namespace fsdptrain::tools {

// All values of model.name.
std::vector<std::string_view> model_names();

// The model of a name that fixes all sizes; nothing for a family, whose sizes are keys.
std::optional<ModelConfig> preset_model(std::string_view name);

}  // namespace fsdptrain::tools
