#include "comm/init/where_signal.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

#include "comm/flight/table.h"
#include "comm/signals.h"
#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

constexpr std::size_t kShownOperations = 8;

// In the place of an action that ends the process, for a thread that does not hold the signal back.
void do_nothing(int /*signal*/) {}

// At once, so that ranks do not write into each other's lines.
void write_all(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) {
      return;
    }
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

std::string text_of_ring(int descriptor) {
  try {
    const FlightSnapshot ring = read_flight_ring(descriptor, "the flight ring");
    const Nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
    return rank_line(ring, now) + operations_table(ring, now, kShownOperations);
  } catch (const Error& error) {
    return fmt::format("{}\n", error.what());
  }
}

}  // namespace

WhereSignal::WhereSignal() {
  sigset_t mine;
  sigemptyset(&mine);
  sigaddset(&mine, SIGUSR2);
  arrived_ = Descriptor(::signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK));
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
  check<IoError>(arrived_.is_open() && wake_.is_open(),
                 "signals cannot be watched: {}; raise the limit of open files (ulimit -n)",
                 std::generic_category().message(errno));
  struct sigaction action {};
  action.sa_handler = do_nothing;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR2, &action, &action_before_);
  sigaddset(&mine, SIGCONT);
  pthread_sigmask(SIG_BLOCK, &mine, &before_);
  watcher_ = thread_without_signals([this] { serve(); });
}

WhereSignal::~WhereSignal() {
  const std::uint64_t one = 1;
  while (::write(wake_.number(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  watcher_.join();
  // One that is still held back is lost here, under the action that does nothing, rather than end
  // the process under the one before.
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  ::sigaction(SIGUSR2, &action_before_, nullptr);
}

void WhereSignal::watch(int ring) {
  const std::lock_guard lock(mutex_);
  rings_.push_back(ring);
}

void WhereSignal::forget(int ring) {
  const std::lock_guard lock(mutex_);
  std::erase(rings_, ring);
}

void WhereSignal::serve() {
  std::array<pollfd, 2> sources{{{arrived_.number(), POLLIN, 0}, {wake_.number(), POLLIN, 0}}};
  for (;;) {
    if (::poll(sources.data(), sources.size(), -1) < 0) {
      continue;
    }
    signalfd_siginfo info{};
    if (::read(arrived_.number(), &info, sizeof info) == sizeof info) {
      print();
    } else if (sources[1].revents != 0) {
      return;
    }
  }
}

void WhereSignal::print() const {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    for (const int ring : rings_) {
      text += text_of_ring(ring);
    }
    if (rings_.empty()) {
      text = fmt::format("process {} has not joined its job yet, or has left it\n", ::getpid());
    }
  }
  write_all(text);
}

}  // namespace fsdptrain::comm
