#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/descriptor.h"

namespace fsdptrain::tools {

// One standard stream of the launcher. Whoever reads it may be slow, or gone: what it does not take
// at once waits here, and after an error everything is thrown away.
class Sink {
 public:
  // `name` for people: "standard output". The descriptor stays the caller's, and blocking, as
  // others have it, too.
  Sink(int descriptor, std::string name);

  void add(std::string_view bytes);
  // Hands over what is taken without waiting.
  void flush();
  // Waits until all is taken; false where that failed.
  bool finish();

  int descriptor() const { return own_.is_open() ? own_.number() : descriptor_; }
  bool is_terminal() const { return is_terminal_; }
  bool has_pending() const { return !pending_.empty(); }
  // It says that it takes bytes, and takes none: there is nothing to wait for but time.
  bool is_stuck() const { return is_stuck_; }
  // Enough waits: whoever prints should.
  bool is_full() const { return pending_.size() > kFull; }
  // Why it takes nothing more; empty: it does.
  const std::string& error() const { return error_; }
  const std::string& name() const { return name_; }

 private:
  static constexpr std::size_t kFull = std::size_t{256} << 10;

  // False where it has taken nothing.
  bool write_some(std::string_view bytes, std::size_t& count);
  bool takes_bytes(int timeout) const;

  int descriptor_;
  std::string name_;
  bool is_terminal_;
  // The same terminal or pipe, in a description that does not block.
  Descriptor own_;
  bool is_stuck_ = false;
  std::string pending_;
  std::string error_;
};

enum class StandardStream : std::uint8_t { Output, Error };

// What the launcher prints: lines of ranks, and its own on standard error. A line of progress,
// where standard error is a terminal, stays below them.
class Console {
 public:
  Console();

  // "[rank 1] text" with its end.
  void line(StandardStream stream, int rank, std::string_view text);
  // "launch: text"
  void note(std::string_view text);
  // As it is.
  void text(std::string_view text);
  void progress(std::string_view text);

  Sink& sink(StandardStream stream) { return stream == StandardStream::Output ? output_ : error_; }
  // The columns of the terminal on standard error, or 0.
  int terminal_columns() const;
  void flush();
  // All that was printed is taken, or was thrown away.
  void finish();
  // Says once that a stream takes nothing more; whether one does not.
  bool has_lost_output();

 private:
  void print(Sink& sink, std::string_view text);

  Sink output_;
  Sink error_;
  std::string progress_;
  bool has_said_lost_ = false;
};

}  // namespace fsdptrain::tools
