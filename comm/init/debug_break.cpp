#include "comm/init/debug_break.h"

#include <csignal>
#include <cstdio>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <string>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/host_name.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

constexpr const char* kVariable = "FSDPTRAIN_BREAK_RANK";
constexpr timespec kBetweenLooks{.tv_sec = 0, .tv_nsec = 100'000'000};

bool is_traced() {
  constexpr std::string_view kKey = "TracerPid:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kKey)) {
      return line.find_first_of("123456789", kKey.size()) != std::string::npos;
    }
  }
  return false;
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stderr);
}

}  // namespace

std::optional<BreakPoint> read_break_point(const Lookup& lookup, int world_size) {
  const std::string text = lookup(kVariable).value_or("");
  if (text.empty()) {
    return std::nullopt;
  }
  const std::size_t mark = text.find('@');
  const std::optional<int> rank = parse_number(text.substr(0, mark));
  const std::optional<std::int64_t> step =
      mark == std::string::npos ? std::nullopt : parse_number<std::int64_t>(text.substr(mark + 1));
  check<ConfigError>(rank && (mark == std::string::npos || step),
                     "{} must be RANK or RANK@STEP, like 2 or 2@100, got {}", kVariable,
                     in_quotes(text.substr(0, 100)));
  check<ConfigError>(*rank < world_size, "{}: the rank must be one of 0 to {}, got {}", kVariable,
                     world_size - 1, *rank);
  return BreakPoint{*rank, step};
}

void DebugBreak::at(std::int64_t step, const std::function<bool()>& is_stopped) {
  if (!point_ || is_over_ || point_->rank != rank_ || (point_->step && *point_->step != step)) {
    return;
  }
  is_over_ = true;
  sigset_t go_on;
  sigemptyset(&go_on);
  sigaddset(&go_on, SIGCONT);
  // One that came earlier was for another stop.
  const timespec at_once{};
  ::sigtimedwait(&go_on, nullptr, &at_once);
  const pid_t process = ::getpid();
  print(
      fmt::format("rank {} (process {} on {}) waits for a debugger before step {}: gdb -p {}\n"
                  "to go on without one: kill -CONT {}\n",
                  rank_, process, host_name(), step, process, process));
  const char* why = "a debugger is attached";
  while (!is_traced()) {
    if (::sigtimedwait(&go_on, nullptr, &kBetweenLooks) == SIGCONT) {
      why = "it was told to";
      break;
    }
    if (is_stopped && is_stopped()) {
      why = "the job is stopped";
      break;
    }
  }
  print(fmt::format("rank {} (process {}) goes on: {}\n", rank_, process, why));
}

}  // namespace fsdptrain::comm
