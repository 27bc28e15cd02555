#include "tools/progress.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace fsdptrain::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenPrints{200};
constexpr std::size_t kBarWidth = 24;

// Of the terminal; it may change while work goes on.
std::size_t columns_of_terminal() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::optional<std::size_t> parse_columns(const char* text) {
  constexpr std::size_t kMostColumns = 10'000;
  const std::string_view digits = text == nullptr ? "" : text;
  std::size_t columns = 0;
  const auto [rest, error] = std::from_chars(digits.begin(), digits.end(), columns);
  const bool is_number = error == std::errc() && rest == digits.end();
  return is_number && columns >= 1 && columns <= kMostColumns ? std::optional(columns)
                                                              : std::nullopt;
}

std::string fit_line(const std::string& line, double share, std::size_t columns) {
  // A line that fills the last column would wrap on some terminals, and could not be cleared.
  const std::size_t room = columns > 0 ? columns - 1 : 0;
  if (line.size() + kBarWidth + 3 > room) {
    return line.substr(0, room);
  }
  const auto filled = static_cast<std::size_t>(
      std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(kBarWidth)));
  return fmt::format("[{}{}] {}", std::string(filled, '#'), std::string(kBarWidth - filled, '.'),
                     line);
}

std::string progress_line(const std::string& what, std::uint64_t done, std::uint64_t total,
                          double seconds, ProgressUnit unit) {
  const auto so_far = static_cast<double>(done);
  // A file may have grown since its size was taken.
  const auto all = static_cast<double>(std::max({total, done, std::uint64_t{1}}));
  const double rate = so_far / std::max(seconds, 1e-9);
  const auto left = rate > 0 ? std::llround((all - so_far) / rate) : 0LL;
  const std::string remaining = fmt::format("{}:{:02} left", left / 60, left % 60);
  if (unit == ProgressUnit::Turns) {
    return fmt::format("{}: {} of {}, {}", what, done, total, remaining);
  }
  return fmt::format("{}: {:.0f} % of {:.1f} MB, {:.1f} MB/s, {}", what, 100 * so_far / all,
                     all / 1e6, rate / 1e6, remaining);
}

Progress::Progress(std::string what, std::uint64_t total, ProgressUnit unit)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      columns_there_(parse_columns(std::getenv("FSDPTRAIN_TERMINAL"))),
      start_(Clock::now()),
      last_print_(start_) {}

std::size_t Progress::columns() const {
  return is_terminal_ || !columns_there_ ? columns_of_terminal() : *columns_there_;
}

Progress::~Progress() {
  clear();
}

void Progress::clear() {
  if (shown_) {
    std::fputs("\r\x1b[K", stderr);
    shown_ = false;
    last_print_ = {};  // what was cleared comes back at once, not to flicker
  }
}

void Progress::update(std::uint64_t done) {
  const Clock::time_point now = Clock::now();
  if ((!is_terminal_ && !columns_there_) || now - last_print_ < kBetweenPrints) {
    return;
  }
  last_print_ = now;
  shown_ = true;
  const std::chrono::duration<double> elapsed = now - start_;
  const std::string line = progress_line(what_, done, total_, elapsed.count(), unit_);
  const double share =
      static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(total_, 1));
  std::fputs(fmt::format("\r{}\x1b[K", fit_line(line, share, columns())).c_str(), stderr);
}

}  // namespace fsdptrain::tools
