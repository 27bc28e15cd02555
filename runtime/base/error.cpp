#include "runtime/base/error.h"

#include <string_view>

namespace fsdptrain {
namespace detail {

std::string render_error(fmt::string_view text, fmt::format_args args, SourceLocation where) {
  std::string_view file = where.file;
  if (file.starts_with(FSDPTRAIN_SOURCE_DIR)) {
    file.remove_prefix(std::string_view(FSDPTRAIN_SOURCE_DIR).size() + 1);
  }
  // A compiler cache may have made the path relative to the build folder.
  while (file.starts_with("../")) {
    file.remove_prefix(3);
  }
  return fmt::format("{} [{}:{}]", fmt::vformat(text, args), file, where.line);
}

}  // namespace detail

void Error::add_context(std::string_view context) {
  message_ = fmt::format("{}: {}", context, message_);
}

}  // namespace fsdptrain
