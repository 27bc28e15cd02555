#include "tools/bench/comm_ranks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

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
  if (backend == CommBackend::Shm) {
    start_in_shared_memory(cores, max_nbytes);
  } else {
    start_on_gloo(max_nbytes);
  }
}

void CommRanks::start_in_shared_memory(const std::vector<int>& cores, std::int64_t max_nbytes) {
  const Descriptor segment(
      comm::Segment::create({num_ranks_, comm_arena_bytes(num_ranks_, max_nbytes)}));
  for (int rank = 0; rank < num_ranks_; ++rank) {
    start({.rank = rank,
           .num_ranks = num_ranks_,
           .segment = segment.number(),
           .core = cores[static_cast<std::size_t>(rank) % cores.size()],
           .spins = static_cast<std::size_t>(num_ranks_) <= cores.size(),
           .max_nbytes = max_nbytes});
  }
}

void CommRanks::start_on_gloo(std::int64_t max_nbytes) {
  const CommStore store(num_ranks_);
  const std::string_view token = store.token().bytes();
  for (int rank = 0; rank < num_ranks_; ++rank) {
    start(
        {.rank = rank, .num_ranks = num_ranks_, .store = store.socket(), .max_nbytes = max_nbytes});
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const int socket = ranks_[rank].socket.number();
    char ready = 0;
    if (!receive_all(socket, &ready, 1) || !send_all(socket, token.data(), token.size())) {
      fail_ended(rank);
    }
  }
  // They need the store until all have met.
  run({.op = CommOp::Barrier});
}

void CommRanks::start(const CommRankOptions& options) {
  std::array<int, 2> sockets{};
  const bool is_made = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0;
  check<IoError>(is_made, "bench comm: no socket for a rank: {}", std::strerror(errno));
  Descriptor socket(sockets[0]);
  const Descriptor its(sockets[1]);
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
  ranks_.push_back({Process({.program = "/proc/self/exe",
                             .arguments = std::move(arguments),
                             .descriptors = {{STDIN_FILENO, its.number()}}}),
                    std::move(socket)});
}

void CommRanks::fail_ended(std::size_t rank) {
  std::string how = "one failed and said why";
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    // Others end because of the first; one that was killed is the cause.
    const std::optional<ProcessEnd> end =
        i == rank ? ranks_[i].process.wait() : ranks_[i].process.poll();
    if (end && end->is_signal) {
      how = fmt::format("rank {} {}", i, to_string(*end));
      break;
    }
  }
  fail("bench comm: of {} ranks, {}", num_ranks_, how);
}

std::vector<CommTimes> CommRanks::run(const CommTask& task) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!send_all(ranks_[rank].socket.number(), &task, sizeof(task))) {
      fail_ended(rank);
    }
  }
  const auto repeats = static_cast<std::size_t>(task.repeats);
  std::vector<CommTimes> all;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<CommTimes> mine(repeats);
    if (!receive_all(ranks_[rank].socket.number(), mine.data(), repeats * sizeof(CommTimes))) {
      fail_ended(rank);
    }
    if (rank == 0) {
      all = mine;
    }
    std::ranges::transform(all, mine, all.begin(), span_both);
  }
  return all;
}

}  // namespace fsdptrain::tools
