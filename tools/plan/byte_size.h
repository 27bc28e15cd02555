#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Amounts of memory in texts.
namespace fsdptrain::tools {

// "1.50 GiB": three digits and a unit of 1024s.
std::string size_text(std::int64_t nbytes);

// "80GiB", "80 GB", "1.5TiB", "1024": a number from 0 on and a unit of 1024s (KiB, MiB, GiB, TiB)
// or of 1000s (KB, MB, GB, TB), or bytes without one. ConfigError saying how it is written.
std::int64_t parse_size(std::string_view text);

}  // namespace fsdptrain::tools
