#include "tools/launch/line_splitter.h"

#include <algorithm>

namespace fsdptrain::tools {
namespace {

// Erases the rest of a terminal's line: of no meaning where the line is drawn anew.
constexpr std::string_view kErase = "\x1b[K";

}  // namespace

void LineSplitter::feed(std::string_view bytes, LineTaker& taker) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kMaxLine - rest_.size();
    const std::size_t count = std::min({end, bytes.size(), room});
    rest_ += bytes.substr(0, count);
    bytes.remove_prefix(count);
    if (has_progress_) {
      take_progress(taker);
    }
    if (!bytes.empty() && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      taker.line(rest_);
      rest_.clear();
    } else if (rest_.size() == kMaxLine) {
      taker.line(rest_);
      rest_.clear();
    }
  }
}

void LineSplitter::take_progress(LineTaker& taker) {
  if (!rest_.starts_with('\r')) {
    return;
  }
  // Only the last one would still be seen. What is behind the erased rest is a line that begins.
  std::string_view shown = std::string_view(rest_).substr(rest_.rfind('\r') + 1);
  const std::size_t erase = shown.find(kErase);
  if (erase == std::string_view::npos) {
    return;
  }
  taker.progress(shown.substr(0, erase));
  rest_ = std::string(shown.substr(erase + kErase.size()));
}

void LineSplitter::finish(LineTaker& taker) {
  if (has_progress_ && rest_.starts_with('\r')) {
    rest_.erase(0, rest_.rfind('\r') + 1);
  }
  if (!rest_.empty()) {
    taker.line(rest_);
    rest_.clear();
  }
}

}  // namespace fsdptrain::tools
