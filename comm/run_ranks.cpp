#include "comm/run_ranks.h"

#include <fmt/format.h>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "comm/error.h"
#include "comm/link/headline.h"
#include "comm/threads/thread_boards.h"
#include "runtime/base/host_schedule.h"
#include "runtime/base/processors.h"
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

// Blocks until all are there.
void wait_at(std::latch& latch, HostSchedule* schedule) {
  if (schedule != nullptr) {
    schedule->wait([&] { return latch.try_wait(); });
  } else {
    latch.wait();
  }
}

// Counts a rank among those that have ended, once.
class Ending {
 public:
  Ending(std::latch& ended, HostSchedule* schedule) : ended_(ended), schedule_(schedule) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() {
    if (!counted_) {
      ended_.count_down();
    }
  }

  void wait_for_all() {
    counted_ = true;
    ended_.count_down();
    wait_at(ended_, schedule_);
  }

 private:
  std::latch& ended_;
  HostSchedule* schedule_;
  bool counted_ = false;
};

// Ranks that connect, each once. None goes on before all have, and none if one could not.
class Arrivals {
 public:
  Arrivals(int num_ranks, HostSchedule* schedule) : arrived_(num_ranks), schedule_(schedule) {}

  // For a rank that could not.
  void fail(int rank, const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) {
        failure_ = fmt::format("rank {} failed: {}", rank, headline(text_of(error)));
      }
    }
    arrived_.count_down();
  }
  void wait_for_all() {
    arrived_.count_down();
    wait_at(arrived_, schedule_);
    const std::lock_guard lock(mutex_);
    check<PeerError>(failure_.empty(), "{}", failure_);
  }

 private:
  std::latch arrived_;
  HostSchedule* schedule_;
  std::mutex mutex_;
  // Empty while no rank has failed.
  std::string failure_;
};

// As `connect`, which may throw on some ranks only.
Connect connect_all(const Connect& connect, int num_ranks, HostSchedule* schedule) {
  return [connect, arrivals = std::make_shared<Arrivals>(num_ranks, schedule)](int rank) {
    Links links;
    try {
      links = connect(rank);
    } catch (...) {
      arrivals->fail(rank, std::current_exception());
      throw;
    }
    arrivals->wait_for_all();
    return links;
  };
}

void run_rank(const ThreadRanks& ranks, int rank, RankContext& context, const Connect& connect,
              const std::function<void(World&)>& body, std::latch& ended) {
  Ending ending(ended, ranks.schedule);
  const ContextGuard guard(context);
  World::Options options = ranks.world;
  if (ranks.delay_seed) {
    options.delay = random_delays(*ranks.delay_seed, rank);
  }
  if (options.device.type == DeviceType::Cuda) {
    options.device.index += rank;
  }
  World world(connect(rank), std::move(options));
  try {
    body(world);
  } catch (...) {
    world.fail(text_of(std::current_exception()));
    // They may be reading what this rank offered: it goes with the world.
    ending.wait_for_all();
    throw;
  }
}

// A rank's place in the order of a schedule, if there is one.
class Turn {
 public:
  Turn(HostSchedule* schedule, int rank) : schedule_(schedule), rank_(rank) {
    if (schedule_ != nullptr) {
      schedule_->begin(rank_);
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (schedule_ != nullptr) {
      schedule_->end(rank_);
    }
  }

 private:
  HostSchedule* schedule_;
  int rank_;
};

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
  Connect connect;
  if (ranks.connect) {
    connect = connect_all(ranks.connect, ranks.num_ranks, ranks.schedule);
  } else {
    boards = std::make_shared<ThreadBoards>(ranks.num_ranks);
    const bool spins = ranks.num_ranks * ranks.threads_per_rank <= num_processors();
    connect = [boards, spins, schedule = ranks.schedule](int rank) {
      return boards->connect(rank, spins, schedule);
    };
  }
  // Before all threads: others would wait for a rank without one.
  std::vector<std::unique_ptr<RankContext>> contexts;
  for (int rank = 0; rank < ranks.num_ranks; ++rank) {
    contexts.push_back(std::make_unique<RankContext>(RankContext::Options{
        .threads = ranks.threads_per_rank,
        .log_prefix = ranks.num_ranks == 1 ? "" : fmt::format("[rank {}] ", rank)}));
  }
  for (const std::unique_ptr<RankContext>& context : contexts) {
    context->schedule = ranks.schedule;
  }
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks.num_ranks));
  std::latch ended(ranks.num_ranks);
  // Whether all threads could be started: a rank that never comes would be waited for.
  std::promise<bool> started;
  const std::shared_future<bool> all_started = started.get_future().share();
  std::vector<std::jthread> threads;
  try {
    for (int rank = 0; rank < ranks.num_ranks; ++rank) {
      threads.emplace_back([&, rank, all_started] {
        try {
          if (all_started.get()) {
            const Turn turn(ranks.schedule, rank);
            run_rank(ranks, rank, *contexts[static_cast<std::size_t>(rank)], connect, body, ended);
          }
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  } catch (const std::exception& error) {
    started.set_value(false);
    fail(
        "ranks: wanted {} threads, but only {} could be started ({}): raise the limit of "
        "`ulimit -u` or run fewer ranks",
        ranks.num_ranks, threads.size(), error.what());
  }
  started.set_value(true);
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
