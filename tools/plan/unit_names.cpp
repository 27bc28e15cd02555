#include "tools/plan/unit_names.h"

#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "runtime/base/parse_number.h"

namespace fsdptrain::tools {
namespace {

struct Numbered {
  std::string_view before;
  std::optional<std::int64_t> number;
};

Numbered split(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) {
    return {name, std::nullopt};
  }
  return {name.substr(0, dot + 1), parse_number<std::int64_t>(name.substr(dot + 1))};
}

bool follow(std::string_view name, std::string_view next) {
  const Numbered a = split(name);
  const Numbered b = split(next);
  return a.number && b.number && a.before == b.before && *b.number == *a.number + 1;
}

}  // namespace

std::string folded(std::span<const std::string> names) {
  std::string text;
  for (std::size_t begin = 0; begin < names.size();) {
    std::size_t last = begin;
    while (last + 1 < names.size() && follow(names[last], names[last + 1])) {
      ++last;
    }
    text += text.empty() ? "" : ", ";
    text += names[begin];
    if (last > begin) {
      text += fmt::format("-{}", *split(names[last]).number);
    }
    begin = last + 1;
  }
  return text;
}

}  // namespace fsdptrain::tools
