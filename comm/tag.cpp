#include "comm/tag.h"

#include <fmt/format.h>
#include <string_view>

namespace fsdptrain::comm {
namespace {

std::string_view name_of(Direction direction) {
  switch (direction) {
    case Direction::None:
      return "";
    case Direction::Forward:
      return " forward";
    case Direction::Backward:
      return " backward";
  }
  return " in no known direction";
}

}  // namespace

std::string to_string(const Tag& tag) {
  return fmt::format("root {} group {} invocation {}{}", tag.root, tag.group, tag.invocation,
                     name_of(tag.direction));
}

}  // namespace fsdptrain::comm
