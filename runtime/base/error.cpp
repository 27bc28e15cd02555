#include "runtime/base/error.h"

#include <string_view>

namespace fsdptrain {

std::string to_string(const SourceLocation& where) {
  constexpr std::string_view kSourceFolder = FSDPTRAIN_SOURCE_DIR "/";
  constexpr std::string_view kParent = "../";
  std::string_view file = where.file;
  if (file.starts_with(kSourceFolder)) {
    file.remove_prefix(kSourceFolder.size());
  }
  // A compiler cache may have named the file from the build folder.
  while (file.starts_with(kParent)) {
    file.remove_prefix(kParent.size());
  }
  return fmt::format("{}:{}", file, where.line);
}

std::string detail::render_error(fmt::string_view text, fmt::format_args args,
                                 SourceLocation where) {
  return fmt::format("{} [{}]", fmt::vformat(text, args), to_string(where));
}

void Error::add_context(std::string_view context) {
  message_ = fmt::format("{}: {}", context, message_);
}

}  // namespace fsdptrain
