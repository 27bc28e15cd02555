#include "runtime/base/quoted.h"

#include <cstddef>
#include <fmt/format.h>

namespace fsdptrain {
namespace {

std::size_t length_of_sequence(unsigned char first) {
  return first < 0x80                    ? 1
         : first >= 0xc2 && first < 0xe0 ? 2
         : first >= 0xe0 && first < 0xf0 ? 3
         : first >= 0xf0 && first < 0xf5 ? 4
                                         : 0;
}

// The bytes of the character of UTF-8 at the begin of `text`; 0 if there is none, or a control
// character.
std::size_t character_at(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = length_of_sequence(byte(0));
  if (length == 0 || length > text.size() || (length == 1 && (byte(0) < 0x20 || byte(0) == 0x7f))) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  const bool is_overlong =
      (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool is_surrogate = byte(0) == 0xed && byte(1) >= 0xa0;
  const bool is_beyond = byte(0) == 0xf4 && byte(1) >= 0x90;
  return is_overlong || is_surrogate || is_beyond ? 0 : length;
}

std::string escaped(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
}

// The number of a character of two or three bytes.
unsigned code_of(std::string_view character) {
  unsigned code = static_cast<unsigned char>(character[0]) & (character.size() == 2 ? 0x1fu : 0xfu);
  for (const char c : character.substr(1)) {
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3fu);
  }
  return code;
}

// As it is, but for what steers a terminal: controls of two bytes, line ends and the direction of
// writing.
std::string without_controls(std::string_view character) {
  if (character == "\\") {
    return "\\\\";
  }
  if (character.size() == 2 || character.size() == 3) {
    const unsigned code = code_of(character);
    if (code < 0xa0) {
      return fmt::format("\\x{:02x}", code);
    }
    if ((code >= 0x200e && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
        (code >= 0x2066 && code <= 0x2069)) {
      return fmt::format("\\u{:04x}", code);
    }
  }
  return std::string(character);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = character_at(text);
    result += length == 0 ? escaped(text.front()) : without_controls(text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : printable(text)) {
    if (c == '"') {
      result += '\\';
    }
    result += c;
  }
  return result + "\"";
}

std::string shown(std::string_view name) {
  constexpr std::size_t kMaxShown = 200;
  return fmt::format("{}{}", in_quotes(name.substr(0, kMaxShown)),
                     name.size() > kMaxShown ? "..." : "");
}

}  // namespace fsdptrain
