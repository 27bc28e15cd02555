#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace fsdptrain {

// A whole number from 0 on, in decimal digits and nothing else; nothing where the text is not one,
// or T does not hold it.
template <class T = int>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const bool is_number = error == std::errc() && rest == end && number >= 0;
  return is_number && text.front() != '-' ? std::optional(number) : std::nullopt;
}

}  // namespace fsdptrain
