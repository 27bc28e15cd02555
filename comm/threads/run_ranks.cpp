#include "comm/threads/run_ranks.h"

#include <fmt/format.h>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "comm/error.h"
#include "comm/threads/thread_boards.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm {
namespace {

std::function<void()> random_delays(std::uint64_t seed, int rank) {
  return [random = std::mt19937_64(seed * 1000 + static_cast<std::uint64_t>(rank))]() mutable {
    // Most steps go on at once, so that some ranks are far ahead of others.
    const std::uint64_t draw = random() % 1000;
    if (draw < 200) {
      std::this_thread::sleep_for(std::chrono::microseconds(draw));
    }
  };
}

void run_rank(const ThreadRanks& ranks, int rank, const Connect& connect,
              const std::function<void(World&)>& body) {
  RankContext context({.threads = 1, .log_prefix = fmt::format("[rank {}] ", rank)});
  const ContextGuard guard(context);
  World::Options options = ranks.world;
  if (ranks.delay_seed) {
    options.delay = random_delays(*ranks.delay_seed, rank);
  }
  World world(connect(rank), std::move(options));
  try {
    body(world);
  } catch (const std::exception& error) {
    world.fail(error.what());
    throw;
  } catch (...) {
    world.fail("an exception of no known type");
    throw;
  }
}

// Whether this is only the echo of what another rank threw.
bool is_echo(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::vector<std::exception_ptr> try_ranks(const ThreadRanks& ranks,
                                          const std::function<void(World&)>& body) {
  check<ConfigError>(ranks.num_ranks >= 1, "there must be at least one rank, got {}",
                     ranks.num_ranks);
  std::shared_ptr<ThreadBoards> boards;
  Connect connect = ranks.connect;
  if (!connect) {
    boards = std::make_shared<ThreadBoards>(ranks.num_ranks);
    connect = [boards](int rank) { return boards->connect(rank); };
  }
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks.num_ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks.num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_rank(ranks, rank, connect, body);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  threads.clear();
  return errors;
}

void run_ranks(const ThreadRanks& ranks, const std::function<void(World&)>& body) {
  const std::vector<std::exception_ptr> errors = try_ranks(ranks, body);
  std::exception_ptr first;
  for (const std::exception_ptr& error : errors) {
    if (error && (!first || (is_echo(first) && !is_echo(error)))) {
      first = error;
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

}  // namespace fsdptrain::comm
