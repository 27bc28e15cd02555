#include "tools/config/text.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace fsdptrain::tools {
namespace {

// Far above any key of this program, section.name.
constexpr std::size_t kMaxKeyDots = 16;

// Where the string that begins at `begin` ends; where it is not closed, the end of its line, or
// of the text: the parser goes no further either.
std::size_t end_of_string(std::string_view toml, std::size_t begin) {
  const char quote = toml[begin];
  const std::string fence(3, quote);
  const bool is_multiline = toml.substr(begin).starts_with(fence);
  std::size_t at = begin + (is_multiline ? fence.size() : 1);
  while (at < toml.size()) {
    if (quote == '"' && toml[at] == '\\') {
      at += 2;
    } else if (is_multiline && toml.substr(at).starts_with(fence)) {
      // Up to two more quotes belong to the string.
      const std::size_t behind = toml.find_first_not_of(quote, at);
      return std::min({behind, at + fence.size() + 2, toml.size()});
    } else if (!is_multiline && toml[at] == quote) {
      return at + 1;
    } else if (!is_multiline && toml[at] == '\n') {
      return at;
    } else {
      ++at;
    }
  }
  return toml.size();
}

}  // namespace

void check_config_text(std::string_view toml, const std::string& source) {
  check<ConfigError>(toml.size() <= kMaxConfigBytes,
                     "{}: a configuration has at most {} bytes, got {}", source, kMaxConfigBytes,
                     toml.size());
  std::size_t line = 1;
  std::size_t dots = 0;
  std::size_t at = 0;
  while (at < toml.size()) {
    const char letter = toml[at];
    if (letter == '"' || letter == '\'') {
      const std::size_t end = end_of_string(toml, at);
      line += static_cast<std::size_t>(std::ranges::count(toml.substr(at, end - at), '\n'));
      at = end;
      continue;
    }
    if (letter == '#') {
      at = std::min(toml.find('\n', at), toml.size());
      continue;
    }
    if (letter == '.') {
      ++dots;
      check<ConfigError>(dots <= kMaxKeyDots, "{}:{}: a key has at most {} dots: write section.key",
                         source, line, kMaxKeyDots);
    } else if (std::string_view("\n=,[]{}").find(letter) != std::string_view::npos) {
      dots = 0;
      line += letter == '\n' ? 1 : 0;
    }
    ++at;
  }
}

}  // namespace fsdptrain::tools
