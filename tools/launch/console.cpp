#include "tools/launch/console.h"

#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace fsdptrain::tools {
namespace {

// What a pipe that says it takes bytes takes without waiting. A terminal may take a single one.
constexpr std::size_t kPiece = PIPE_BUF;
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr std::string_view kEraseLine = "\r\x1b[K";

// Whether it blocks is of the open file, which the shell and other programs share: only one of our
// own may be changed. Where the system gives none, as for a terminal of another user, nothing.
Descriptor open_again(int descriptor, bool is_terminal) {
  struct stat status {};
  if (!is_terminal && (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode))) {
    return {};
  }
  const std::string path = fmt::format("/proc/self/fd/{}", descriptor);
  return Descriptor(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

Sink::Sink(int descriptor, std::string name)
    : descriptor_(descriptor),
      name_(std::move(name)),
      is_terminal_(::isatty(descriptor) == 1),
      own_(open_again(descriptor, is_terminal_)) {}

void Sink::add(std::string_view bytes) {
  if (error_.empty()) {
    pending_ += bytes;
  }
}

bool Sink::takes_bytes(int timeout) const {
  pollfd entry{.fd = descriptor(), .events = POLLOUT, .revents = 0};
  // An error is for the write to find.
  return ::poll(&entry, 1, timeout) > 0;
}

bool Sink::write_some(std::string_view bytes, std::size_t& count) {
  const std::size_t piece = is_terminal_ && !own_.is_open() ? 1 : kPiece;
  const ssize_t written = ::write(descriptor(), bytes.data(), std::min(bytes.size(), piece));
  if (written >= 0) {
    count += static_cast<std::size_t>(written);
    return true;
  }
  if (errno == EINTR) {
    return true;
  }
  if (errno == EAGAIN) {
    is_stuck_ = true;
    return false;
  }
  error_ = std::generic_category().message(errno);
  pending_.clear();
  return false;
}

void Sink::flush() {
  std::size_t count = 0;
  is_stuck_ = false;
  while (count < pending_.size() && takes_bytes(0) &&
         write_some(std::string_view(pending_).substr(count), count)) {
  }
  // After an error nothing is left.
  pending_.erase(0, count);
}

bool Sink::finish() {
  while (!pending_.empty()) {
    if (is_stuck_) {
      std::this_thread::sleep_for(kPause);
    } else {
      takes_bytes(-1);
    }
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
