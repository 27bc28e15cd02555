#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fsdptrain::tools {

// Where the pieces of a stream go.
class LineTaker {
 public:
  virtual ~LineTaker() = default;
  // A line without its end, or a part of one that is too long.
  virtual void line(std::string_view text) = 0;
  // What the stream shows in place of a line until it shows something else: progress of long work,
  // behind a carriage return. Empty: nothing more.
  virtual void progress(std::string_view text) = 0;

 protected:
  LineTaker() = default;
  LineTaker(const LineTaker&) = default;
  LineTaker& operator=(const LineTaker&) = default;
};

// Cuts what a process prints into lines. Holds no more than one of kMaxLine bytes, whatever comes.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{8} << 10;

  // Without `has_progress`, a carriage return is a character like any other.
  explicit LineSplitter(bool has_progress = false) : has_progress_(has_progress) {}

  void feed(std::string_view bytes, LineTaker& taker);
  // The stream has ended: a last line without an end is one too.
  void finish(LineTaker& taker);

 private:
  void take_progress(LineTaker& taker);

  bool has_progress_;
  std::string rest_;
};

}  // namespace fsdptrain::tools
