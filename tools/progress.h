#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fsdptrain::tools {

// A line on standard error that says how far long work has come and when it will be done, where
// standard error is a terminal; elsewhere nothing. The line is gone when the work is.
class Progress {
 public:
  Progress(std::string what, std::uint64_t total_bytes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void update(std::uint64_t done_bytes);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  std::uint64_t total_bytes_;
  bool is_terminal_;
  Clock::time_point start_;
  Clock::time_point last_print_;
};

// "prepare: 42 % of 100.0 MB, 210.5 MB/s, 0:01 left"
std::string progress_line(const std::string& what, std::uint64_t done_bytes,
                          std::uint64_t total_bytes, double seconds);

}  // namespace fsdptrain::tools
