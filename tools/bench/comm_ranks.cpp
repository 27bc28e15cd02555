#include "tools/bench/comm_ranks.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm/segment.h"
#include "runtime/base/error.h"
#include "tools/bench/comm_store.h"

namespace fsdptrain::tools {
namespace {

CommTimes span_both(const CommTimes& a, const CommTimes& b) {
  return {std::min(a.floor_begin, b.floor_begin),
          std::max(a.floor_end, b.floor_end),
          std::min(a.begin, b.begin),
          std::max(a.end, b.end),
          a.floor_was_preempted || b.floor_was_preempted,
          a.was_preempted || b.was_preempted};
}

}  // namespace

CommRanks::CommRanks(CommBackend backend, int num_ranks, const std::vector<int>& cores,
                     std::int64_t max_nbytes)
    : num_ranks_(num_ranks) {
  try {
    if (backend == CommBackend::Shm) {
      start_in_shared_memory(cores, max_nbytes);
    } else {
      start_on_gloo(max_nbytes);
    }
  } catch (...) {
    stop();
    throw;
  }
}

void CommRanks::start_in_shared_memory(const std::vector<int>& cores, std::int64_t max_nbytes) {
  const int segment = comm::Segment::create({num_ranks_, comm_arena_bytes(num_ranks_, max_nbytes)});
  try {
    for (int rank = 0; rank < num_ranks_; ++rank) {
      start({.rank = rank,
             .num_ranks = num_ranks_,
             .segment = segment,
             .core = cores[static_cast<std::size_t>(rank) % cores.size()],
             .spins = static_cast<std::size_t>(num_ranks_) <= cores.size(),
             .max_nbytes = max_nbytes});
    }
  } catch (...) {
    ::close(segment);
    throw;
  }
  ::close(segment);
}

void CommRanks::start_on_gloo(std::int64_t max_nbytes) {
  const CommStore store(num_ranks_);
  const std::string_view token = store.token().bytes();
  for (int rank = 0; rank < num_ranks_; ++rank) {
    start(
        {.rank = rank, .num_ranks = num_ranks_, .store = store.socket(), .max_nbytes = max_nbytes});
  }
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const int socket = processes_[rank].socket;
    char ready = 0;
    if (!receive_all(socket, &ready, 1) || !send_all(socket, token.data(), token.size())) {
      fail_ended(rank);
    }
  }
  // They need the store until all have met.
  run({.op = CommOp::Barrier});
}

CommRanks::~CommRanks() {
  stop();
}

void CommRanks::start(const CommRankOptions& options) {
  std::array<int, 2> sockets{};
  const bool is_made = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0;
  check<IoError>(is_made, "bench comm: no socket for a rank: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, sockets[1], STDIN_FILENO);
  std::vector<std::string> arguments{"fsdptrain",
                                     "bench",
                                     "comm-rank",
                                     fmt::format("--rank={}", options.rank),
                                     fmt::format("--ranks={}", options.num_ranks),
                                     fmt::format("--segment={}", options.segment),
                                     fmt::format("--parent={}", ::getpid()),
                                     fmt::format("--core={}", options.core),
                                     fmt::format("--spins={}", options.spins),
                                     fmt::format("--bytes={}", options.max_nbytes)};
  if (!options.store.empty()) {
    arguments.push_back("--store=" + options.store);
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  Process process{.socket = sockets[0]};
  const int error =
      ::posix_spawn(&process.id, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(sockets[1]);
  if (error != 0) {
    ::close(sockets[0]);
    fail<IoError>("bench comm: rank {} does not start: {}", options.rank, std::strerror(error));
  }
  processes_.push_back(process);
}

void CommRanks::stop() noexcept {
  for (const Process& process : processes_) {
    if (process.id > 0) {
      ::kill(process.id, SIGKILL);
      ::waitpid(process.id, nullptr, 0);
    }
    ::close(process.socket);
  }
  processes_.clear();
}

void CommRanks::fail_ended(std::size_t rank) {
  std::string how = "one failed and said why";
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    int status = 0;
    // Others end because of the first; one that was killed is the cause.
    if (::waitpid(processes_[i].id, &status, i == rank ? 0 : WNOHANG) > 0) {
      processes_[i].id = 0;
      if (WIFSIGNALED(status)) {
        how = fmt::format("rank {} was ended by signal {}", i, WTERMSIG(status));
        break;
      }
    }
  }
  fail("bench comm: of {} ranks, {}", num_ranks_, how);
}

std::vector<CommTimes> CommRanks::run(const CommTask& task) {
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    if (!send_all(processes_[rank].socket, &task, sizeof(task))) {
      fail_ended(rank);
    }
  }
  const auto repeats = static_cast<std::size_t>(task.repeats);
  std::vector<CommTimes> all;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    std::vector<CommTimes> mine(repeats);
    if (!receive_all(processes_[rank].socket, mine.data(), repeats * sizeof(CommTimes))) {
      fail_ended(rank);
    }
    if (rank == 0) {
      all = mine;
    }
    std::ranges::transform(all, mine, all.begin(), span_both);
  }
  return all;
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  check<IoError>(!cores.empty(), "bench comm: the system does not say which processors there are");
  return cores;
}

}  // namespace fsdptrain::tools
