#pragma once

#include <cstddef>
#include <string_view>

namespace fsdptrain {

// Single-character edits between two names (Levenshtein), for errors that suggest what was meant.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace fsdptrain
