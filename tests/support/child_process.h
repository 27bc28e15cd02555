#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <poll.h>
#include <string>
#include <unistd.h>
#include <utility>

#include "runtime/base/process.h"

namespace fsdptrain::testing {

// A process whose output a test reads. One that still runs is killed at the end.
class ChildProcess {
 public:
  struct End {
    // The exit code, or 128 and the signal; 255 if it did not end in a minute.
    int code = 255;
    std::string output;
    std::string errors;
  };

  enum class Errors { Taken, Through };

  // Standard streams but those that `options` put elsewhere; standard error only if it is taken.
  explicit ChildProcess(ProcessOptions options, Errors errors = Errors::Taken)
      : ChildProcess(std::move(options), errors, make_pipe(), make_pipe(), make_pipe()) {}

  void send(int signal) const { process_.send(signal); }
  void close_input() { input_.close(); }

  // Until it holds, a minute at most; whether it does.
  template <class Condition>
  bool wait_until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= deadline) {
        return false;
      }
      receive(10);
    }
    return true;
  }
  const std::string& errors() const { return streams_[1].text; }
  bool wait_for_output(const std::string& part) { return wait_for(0, part); }
  bool wait_for_errors(const std::string& part) { return wait_for(1, part); }

  // Its end closes the pipes.
  End wait() {
    const bool has_ended =
        wait_until([this] { return !streams_[0].pipe.is_open() && !streams_[1].pipe.is_open(); });
    return {has_ended ? process_.wait().shell_code() : 255, streams_[0].text, streams_[1].text};
  }

 private:
  struct Stream {
    Descriptor pipe;
    std::string text = {};
  };

  ChildProcess(ProcessOptions options, Errors errors, Pipe in, Pipe out, Pipe err)
      : input_(std::move(in.write)),
        streams_{{{std::move(out.read)}, {std::move(err.read)}}},
        process_(with_pipes(std::move(options), errors, in, out, err)) {}

  static ProcessOptions with_pipes(ProcessOptions options, Errors errors, const Pipe& in,
                                   const Pipe& out, const Pipe& err) {
    options.descriptors.emplace(STDIN_FILENO, in.read.number());
    options.descriptors.emplace(STDOUT_FILENO, out.write.number());
    if (errors == Errors::Taken) {
      options.descriptors.emplace(STDERR_FILENO, err.write.number());
    }
    return options;
  }

  bool wait_for(std::size_t stream, const std::string& part) {
    return wait_until([&] { return streams_[stream].text.find(part) != std::string::npos; });
  }

  void receive(int milliseconds) {
    std::array<pollfd, 2> readable{};
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      readable[i] = {.fd = streams_[i].pipe.number(), .events = POLLIN, .revents = 0};
    }
    ::poll(readable.data(), readable.size(), milliseconds);
    std::array<char, 4096> bytes{};
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (readable[i].revents != 0) {
        const ssize_t count = ::read(streams_[i].pipe.number(), bytes.data(), bytes.size());
        if (count > 0) {
          streams_[i].text.append(bytes.data(), static_cast<std::size_t>(count));
        } else {
          streams_[i].pipe.close();
        }
      }
    }
  }

  Descriptor input_;
  std::array<Stream, 2> streams_;
  Process process_;
};

}  // namespace fsdptrain::testing
