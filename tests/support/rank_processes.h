#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <spawn.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "comm/flight/memory.h"
#include "comm/shm/segment.h"
#include "tests/support/rank_backends.h"
#include "tests/support/served_store.h"

namespace fsdptrain::testing {

// How a rank that is a process ended, and what it printed.
struct RankEnd {
  // The exit code, or 128 and the signal.
  int code = 0;
  std::string output;
};

// Ranks of one host that are processes of tests/comm/rank_worker.cpp, on shared memory made here,
// or on gloo. What still runs is killed at the end.
class RankProcesses {
 public:
  RankProcesses(Backend backend, const std::string& scenario, int num_ranks,
                std::uint64_t arena_bytes = std::uint64_t{16} << 20) {
    if (backend == Backend::Gloo) {
      store_ = std::make_unique<ServedStore>(num_ranks);
    }
    const int segment = comm::Segment::create({num_ranks, arena_bytes});
    for (int rank = 0; rank < num_ranks; ++rank) {
      rings_.push_back(std::make_unique<comm::FlightMemory>(comm::FlightMemory::create(
          {.rank = rank, .world_size = num_ranks}, {.capacity = 256, .inheritable = true})));
      start(scenario, rank, num_ranks, segment);
    }
    ::close(segment);
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses() {
    for (const Process& process : processes_) {
      if (process.id > 0) {
        ::kill(process.id, SIGKILL);
        ::waitpid(process.id, nullptr, 0);
      }
      ::close(process.output);
    }
  }

  // Waits for the end of a rank, a minute at most: then 255.
  RankEnd wait(int rank) {
    Process& process = processes_[static_cast<std::size_t>(rank)];
    RankEnd end{.code = 255, .output = {}};
    std::array<char, 4096> bytes{};
    pollfd readable{.fd = process.output, .events = POLLIN, .revents = 0};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    // Its end closes the pipe.
    while (std::chrono::steady_clock::now() < deadline && ::poll(&readable, 1, 100) >= 0) {
      if (readable.revents != 0) {
        const ssize_t count = ::read(process.output, bytes.data(), bytes.size());
        if (count <= 0) {
          int status = 0;
          ::waitpid(process.id, &status, 0);
          process.id = 0;
          end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
          break;
        }
        end.output.append(bytes.data(), static_cast<std::size_t>(count));
      }
    }
    return end;
  }

  void kill(int rank, int signal) const {
    ::kill(processes_[static_cast<std::size_t>(rank)].id, signal);
  }
  // The flight ring of a rank, also after its end.
  int ring(int rank) const { return rings_[static_cast<std::size_t>(rank)]->descriptor(); }

 private:
  struct Process {
    pid_t id = 0;
    int output = -1;
  };

  void start(const std::string& scenario, int rank, int num_ranks, int segment) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe2(pipe.data(), O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
    std::vector<std::string> arguments{
        FSDPTRAIN_RANK_WORKER,   scenario,
        std::to_string(rank),    std::to_string(num_ranks),
        std::to_string(segment), std::to_string(rings_.back()->descriptor())};
    if (store_) {
      arguments.push_back(store_->path());
    }
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    Process process{.output = pipe[0]};
    REQUIRE(::posix_spawn(&process.id, FSDPTRAIN_RANK_WORKER, &actions, nullptr, argv.data(),
                          environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    processes_.push_back(process);
  }

  std::vector<std::unique_ptr<comm::FlightMemory>> rings_;
  std::vector<Process> processes_;
  // Where ranks on gloo meet; null for others.
  std::unique_ptr<ServedStore> store_;
};

}  // namespace fsdptrain::testing
