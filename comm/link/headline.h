#pragma once

#include <string_view>

namespace fsdptrain::comm {

// The first line of an error's text: what a rank tells others of it, who put it into a line of
// theirs. All of it, such as where each rank is, is for its own standard error.
inline std::string_view headline(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace fsdptrain::comm
