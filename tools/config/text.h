#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fsdptrain::tools {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

// ConfigError, naming the limit, for TOML text that is too long or has a key of too many parts:
// the parser recurses into every part, so such a text could end the process. Values nest no
// deeper than the parser's own limit allows.
void check_config_text(std::string_view toml, const std::string& source);

}  // namespace fsdptrain::tools
