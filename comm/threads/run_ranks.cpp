#include "comm/threads/run_ranks.h"

#include <fmt/format.h>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "comm/error.h"
#include "comm/shared/board.h"
#include "comm/shared/peer_memory.h"
#include "comm/shared/shared_link.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::comm {
namespace {

// Threads of one process see all of each other's memory.
class ProcessMemory final : public PeerMemory {
 public:
  std::optional<std::uint64_t> export_address(std::span<const std::byte> bytes) override {
    return reinterpret_cast<std::uintptr_t>(bytes.data());
  }
  std::span<const std::byte> import_bytes(int /*peer*/, std::uint64_t address,
                                          std::uint64_t nbytes) override {
    return {reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(address)), nbytes};
  }
  std::shared_ptr<Storage> allocate(std::size_t nbytes) override {
    return Storage::allocate(Device::cpu(), nbytes, MemoryCategory::Communication);
  }
  bool is_alive(int /*peer*/) override { return true; }
};

// The boards of the two links of a world, in memory that starts as zeros.
class Boards {
 public:
  explicit Boards(int num_ranks)
      : memory_(2 * words(num_ranks)),
        training_(half(num_ranks, 0), {}, num_ranks),
        control_(half(num_ranks, 1), {}, num_ranks) {}

  const Board& training() const { return training_; }
  const Board& control() const { return control_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  static std::size_t words(int num_ranks) { return Board::nbytes(num_ranks) / sizeof(Line) + 1; }
  std::span<std::byte> half(int num_ranks, std::size_t index) {
    const std::size_t lines = words(num_ranks);
    return std::as_writable_bytes(std::span(memory_).subspan(index * lines, lines));
  }

  std::vector<Line> memory_;
  Board training_;
  Board control_;
};

std::function<void()> random_delays(std::uint64_t seed, int rank) {
  return [random = std::mt19937_64(seed * 1000 + static_cast<std::uint64_t>(rank))]() mutable {
    // Most steps go on at once, so that some ranks are far ahead of others.
    const std::uint64_t draw = random() % 1000;
    if (draw < 200) {
      std::this_thread::sleep_for(std::chrono::microseconds(draw));
    }
  };
}

void run_rank(const ThreadRanks& ranks, int rank, const Boards& boards,
              const std::function<void(World&)>& body) {
  RankContext context({.threads = 1, .log_prefix = fmt::format("[rank {}] ", rank)});
  const ContextGuard guard(context);
  const bool spins = ranks.num_ranks <= static_cast<int>(std::thread::hardware_concurrency());
  const auto make_link = [&](const Board& board) {
    return std::make_unique<SharedLink>(board, std::make_shared<ProcessMemory>(),
                                        SharedLink::Options{.rank = rank, .spins = spins});
  };
  World::Options options = ranks.world;
  if (ranks.delay_seed) {
    options.channel.delay = random_delays(*ranks.delay_seed, rank);
  }
  auto link = make_link(boards.training());
  auto control = make_link(boards.control());
  World world(std::move(link), std::move(control), std::move(options));
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
  Boards boards(ranks.num_ranks);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks.num_ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks.num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_rank(ranks, rank, boards, body);
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
