#pragma once

#include <span>
#include <string>

namespace fsdptrain::tools {

// Names in their order, those that differ in a last number alone as one where numbers follow each
// other: "h.0-11, the root".
std::string folded(std::span<const std::string> names);

}  // namespace fsdptrain::tools
