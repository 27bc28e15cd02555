#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace fsdptrain::tools {

// What work is counted in.
enum class ProgressUnit : std::uint8_t { Bytes, Turns };

// A line on standard error that says how far long work has come and when it will be done, where
// standard error is a terminal, or where FSDPTRAIN_TERMINAL says that it ends in one; elsewhere
// nothing. The line fits the terminal, however narrow, and
// is gone when the work is.
class Progress {
 public:
  Progress(std::string what, std::uint64_t total, ProgressUnit unit = ProgressUnit::Bytes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void update(std::uint64_t done);
  // Makes room for other lines; the next update() shows the progress again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::size_t columns() const;

  std::string what_;
  std::uint64_t total_;
  ProgressUnit unit_;
  bool is_terminal_;
  // Of the terminal at the other end of a pipe.
  std::optional<std::size_t> columns_there_;
  Clock::time_point start_;
  Clock::time_point last_print_;
  bool shown_ = false;
};

// "prepare: 42 % of 100.0 MB, 210.5 MB/s, 0:01 left", or "bench: 3 of 10, 0:21 left"
std::string progress_line(const std::string& what, std::uint64_t done, std::uint64_t total,
                          double seconds, ProgressUnit unit = ProgressUnit::Bytes);

// FSDPTRAIN_TERMINAL, by which a launcher says that what the process writes to standard error ends
// in a terminal with so many columns. Nothing for a value that is no number of them.
std::optional<std::size_t> parse_columns(const char* text);

// What fits into `columns` of the line: all of it, behind a bar that is full at `share` 1 where
// there is room for one. `line` is ASCII.
std::string fit_line(const std::string& line, double share, std::size_t columns);

}  // namespace fsdptrain::tools
