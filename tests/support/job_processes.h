#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <poll.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace fsdptrain::testing {

// A process of tests/comm/init/job_worker.cpp with an environment of its own. One that still runs
// is killed at the end.
class JobProcess {
 public:
  struct End {
    // The exit code, or 128 and the signal; 255 if it did not end in a minute.
    int code = 255;
    std::string output;
    std::string errors;
  };

  // `inherited`: numbers that descriptors of this process have there.
  JobProcess(const std::map<std::string, std::string>& environment,
             const std::vector<std::string>& arguments, const std::map<int, int>& inherited = {}) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    for (auto* pipe : {&in, &out, &err}) {
      REQUIRE(::pipe2(pipe->data(), O_CLOEXEC) == 0);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    for (const auto& [there, here] : inherited) {
      posix_spawn_file_actions_adddup2(&actions, here, there);
    }
    std::vector<std::string> words{FSDPTRAIN_JOB_WORKER};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<std::string> variables;
    for (const auto& [name, value] : environment) {
      variables.push_back(fmt::format("{}={}", name, value));
    }
    const int error = ::posix_spawn(&id_, FSDPTRAIN_JOB_WORKER, &actions, nullptr,
                                    pointers(words).data(), pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    REQUIRE(error == 0);
    for (const int descriptor : {in[0], out[1], err[1]}) {
      ::close(descriptor);
    }
    input_ = in[1];
    streams_ = {{{out[0], {}}, {err[0], {}}}};
  }
  JobProcess(JobProcess&& other) noexcept
      : id_(std::exchange(other.id_, 0)),
        input_(std::exchange(other.input_, -1)),
        streams_(std::exchange(other.streams_, {{{-1, {}}, {-1, {}}}})) {}
  JobProcess& operator=(JobProcess&&) = delete;
  JobProcess(const JobProcess&) = delete;
  JobProcess& operator=(const JobProcess&) = delete;
  ~JobProcess() {
    if (id_ > 0) {
      ::kill(id_, SIGKILL);
      ::waitpid(id_, nullptr, 0);
    }
    close_input();
    for (const Stream& stream : streams_) {
      if (stream.descriptor >= 0) {
        ::close(stream.descriptor);
      }
    }
  }

  void kill(int signal) const { ::kill(id_, signal); }
  void close_input() {
    if (input_ >= 0) {
      ::close(std::exchange(input_, -1));
    }
  }

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

  End wait() {
    const bool has_ended =
        wait_until([this] { return streams_[0].descriptor < 0 && streams_[1].descriptor < 0; });
    End end{255, streams_[0].text, streams_[1].text};
    if (has_ended) {
      int status = 0;
      ::waitpid(id_, &status, 0);
      id_ = 0;
      end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return end;
  }

 private:
  struct Stream {
    int descriptor = -1;
    std::string text;
  };

  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) {
      all.push_back(text.data());
    }
    all.push_back(nullptr);
    return all;
  }

  bool wait_for(std::size_t stream, const std::string& part) {
    return wait_until([&] { return streams_[stream].text.find(part) != std::string::npos; });
  }

  void receive(int milliseconds) {
    std::array<pollfd, 2> readable{};
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      readable[i] = {.fd = streams_[i].descriptor, .events = POLLIN, .revents = 0};
    }
    ::poll(readable.data(), readable.size(), milliseconds);
    std::array<char, 4096> bytes{};
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (readable[i].revents != 0) {
        const ssize_t count = ::read(streams_[i].descriptor, bytes.data(), bytes.size());
        if (count > 0) {
          streams_[i].text.append(bytes.data(), static_cast<std::size_t>(count));
        } else {
          ::close(std::exchange(streams_[i].descriptor, -1));
        }
      }
    }
  }

  pid_t id_ = 0;
  int input_ = -1;
  std::array<Stream, 2> streams_;
};

}  // namespace fsdptrain::testing
