#pragma once

#include <cstdint>

namespace fsdptrain {

// The target of a position that predicts nothing, where nobody says otherwise.
inline constexpr std::int64_t kIgnoredTarget = -100;

}  // namespace fsdptrain
