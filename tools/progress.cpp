#include "tools/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

namespace fsdptrain::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenPrints{200};

}  // namespace

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
      start_(Clock::now()),
      last_print_(start_) {}

Progress::~Progress() {
  if (is_terminal_) {
    std::fputs("\r\x1b[K", stderr);
  }
}

void Progress::update(std::uint64_t done) {
  const Clock::time_point now = Clock::now();
  if (!is_terminal_ || now - last_print_ < kBetweenPrints) {
    return;
  }
  last_print_ = now;
  const std::chrono::duration<double> elapsed = now - start_;
  const std::string line = progress_line(what_, done, total_, elapsed.count(), unit_);
  std::fputs(fmt::format("\r{}\x1b[K", line).c_str(), stderr);
}

}  // namespace fsdptrain::tools
