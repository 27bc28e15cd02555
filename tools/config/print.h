#pragma once

#include <string>

#include "tools/config/config.h"

namespace fsdptrain::tools {

// The configuration as a TOML file that reads back to the same; keys without effect are left out.
std::string to_toml(const Config& config);

// docs/config.md: every key with type, default, allowed values and meaning.
std::string config_reference();

}  // namespace fsdptrain::tools
