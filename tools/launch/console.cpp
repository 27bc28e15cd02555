#include "tools/launch/console.h"

#include <cerrno>
#include <climits>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace fsdptrain::tools {
namespace {

// What a pipe or a terminal that says it takes bytes takes without waiting.
constexpr std::size_t kPiece = PIPE_BUF;
constexpr std::string_view kEraseLine = "\r\x1b[K";

}  // namespace

Sink::Sink(int descriptor, std::string name)
    : descriptor_(descriptor), name_(std::move(name)), is_terminal_(::isatty(descriptor) == 1) {}

void Sink::add(std::string_view bytes) {
  if (error_.empty()) {
    pending_ += bytes;
  }
}

bool Sink::takes_bytes(int timeout) const {
  pollfd entry{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  // An error is for the write to find.
  return ::poll(&entry, 1, timeout) > 0;
}

bool Sink::write_some(std::string_view bytes, std::size_t& count) {
  const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kPiece));
  if (written >= 0) {
    count += static_cast<std::size_t>(written);
    return true;
  }
  if (errno == EINTR || errno == EAGAIN) {
    return true;
  }
  error_ = std::generic_category().message(errno);
  pending_.clear();
  return false;
}

void Sink::flush() {
  std::size_t count = 0;
  while (count < pending_.size() && takes_bytes(0)) {
    if (!write_some(std::string_view(pending_).substr(count), count)) {
      return;
    }
  }
  pending_.erase(0, count);
}

bool Sink::finish() {
  while (!pending_.empty()) {
    takes_bytes(-1);
    flush();
  }
  return error_.empty();
}

Console::Console()
    : output_(STDOUT_FILENO, "standard output"), error_(STDERR_FILENO, "standard error") {}

void Console::print(Sink& sink, std::string_view text) {
  const bool is_above = !progress_.empty() && sink.is_terminal();
  if (is_above) {
    error_.add(kEraseLine);
    error_.flush();
  }
  sink.add(text);
  if (is_above) {
    sink.flush();
    error_.add(progress_);
  }
}

void Console::line(StandardStream stream, int rank, std::string_view text) {
  print(sink(stream), fmt::format("[rank {}] {}\n", rank, text));
}

void Console::note(std::string_view text) {
  print(error_, fmt::format("launch: {}\n", text));
}

void Console::text(std::string_view text) {
  print(error_, text);
}

void Console::progress(std::string_view text) {
  if (!error_.is_terminal()) {
    return;
  }
  error_.add(kEraseLine);
  progress_ = text;
  error_.add(progress_);
}

int Console::terminal_columns() const {
  winsize size{};
  if (!error_.is_terminal() || ::ioctl(error_.descriptor(), TIOCGWINSZ, &size) != 0) {
    return 0;
  }
  return size.ws_col;
}

void Console::flush() {
  output_.flush();
  error_.flush();
}

void Console::finish() {
  progress("");
  output_.finish();
  error_.finish();
}

bool Console::has_lost_output() {
  const bool is_lost = !output_.error().empty() || !error_.error().empty();
  if (is_lost && !has_said_lost_) {
    has_said_lost_ = true;
    const Sink& lost = output_.error().empty() ? error_ : output_;
    note(fmt::format("{} takes nothing more: {}; the job goes on, and its exit code will be 1",
                     lost.name(), lost.error()));
  }
  return is_lost;
}

}  // namespace fsdptrain::tools
