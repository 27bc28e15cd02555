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

std::string progress_line(const std::string& what, std::uint64_t done_bytes,
                          std::uint64_t total_bytes, double seconds) {
  const auto done = static_cast<double>(done_bytes);
  // A file may have grown since its size was taken.
  const auto total = static_cast<double>(std::max({total_bytes, done_bytes, std::uint64_t{1}}));
  const double rate = done / std::max(seconds, 1e-9);
  const auto left = rate > 0 ? std::llround((total - done) / rate) : 0LL;
  return fmt::format("{}: {:.0f} % of {:.1f} MB, {:.1f} MB/s, {}:{:02} left", what,
                     100 * done / total, total / 1e6, rate / 1e6, left / 60, left % 60);
}

Progress::Progress(std::string what, std::uint64_t total_bytes)
    : what_(std::move(what)),
      total_bytes_(total_bytes),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_print_(start_) {}

Progress::~Progress() {
  if (is_terminal_) {
    std::fputs("\r\x1b[K", stderr);
  }
}

void Progress::update(std::uint64_t done_bytes) {
  const Clock::time_point now = Clock::now();
  if (!is_terminal_ || now - last_print_ < kBetweenPrints) {
    return;
  }
  last_print_ = now;
  const std::chrono::duration<double> elapsed = now - start_;
  const std::string line = progress_line(what_, done_bytes, total_bytes_, elapsed.count());
  std::fputs(fmt::format("\r{}\x1b[K", line).c_str(), stderr);
}

}  // namespace fsdptrain::tools
