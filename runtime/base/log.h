#pragma once

#include <fmt/core.h>
#include <string_view>

// Messages to the user on standard error, each line with the prefix of the bound rank context.
// What a command was asked to print goes to standard output and not through here.
namespace fsdptrain {

void log_warning_line(std::string_view text);

template <class... Args>
void log_warning(fmt::format_string<Args...> text, const Args&... args) {
  log_warning_line(fmt::vformat(text, fmt::make_format_args(args...)));
}

}  // namespace fsdptrain
