// One rank as a process, for tests/comm/processes_test.cpp:
//   rank_worker SCENARIO RANK NUM_RANKS SEGMENT_DESCRIPTOR RING_DESCRIPTOR [STORE_SOCKET]
// With a store, whose token is tests/support/store_token.h's, the ranks are on gloo.
// Exit code 0, or 3 with the error on standard output.

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "comm/error.h"
#include "comm/gloo/connect.h"
#include "comm/gloo/store_rendezvous.h"
#include "comm/shm/connect.h"
#include "comm/store/unix_transport.h"
#include "comm/world.h"
#include "runtime/base/rank_context.h"
#include "tests/support/store_token.h"

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;

constexpr int kRankThatFails = 1;
constexpr std::int64_t kLarge = std::int64_t{1} << 20;

void check_sums(World& world, const Tensor& tensor) {
  for (int round = 0; round < 3; ++round) {
    for (float& value : tensor.mutable_values<float>()) {
      value = static_cast<float>(world.rank() + 1);
    }
    world.group().issue(all_reduce(tensor)).wait();
    const auto expected = static_cast<float>(world.size() * (world.size() + 1) / 2);
    for (const float value : tensor.values<float>()) {
      check<CommError>(value == expected, "the sum is {}, wanted {}", value, expected);
    }
  }
}

// All ranks go through sums in arena and plain memory.
void sum(World& world) {
  check_sums(world, world.group().allocate({kLarge}, DType::Float32));
  check_sums(world, Tensor::empty({kLarge + 3}, DType::Float32));
  const std::vector<std::string> texts = world.exchange("rank " + std::to_string(world.rank()));
  check<CommError>(texts.back() == "rank " + std::to_string(world.size() - 1), "got {}",
                   texts.back());
}

Operation doomed() {
  return all_reduce(Tensor::full({kLarge}, 1), {}, {.group = 8});
}

// The others are, or will be, in a collective that this rank does not carry out.
void end_before(World& world, const std::function<void()>& end) {
  world.group().issue(barrier()).wait();
  if (world.rank() == kRankThatFails) {
    end();
  }
  world.group().issue(doomed()).wait();
}

void end_inside(World& world, const std::function<void()>& end) {
  world.group().issue(barrier()).wait();
  Work work = world.group().issue(doomed());
  if (world.rank() == kRankThatFails) {
    end();
  }
  work.wait();
}

void end_after(World& world, const std::function<void()>& end) {
  world.group().issue(doomed()).wait();
  if (world.rank() == kRankThatFails) {
    end();
  }
  world.group().issue(barrier({.group = 8})).wait();
}

void die() {
  std::raise(SIGKILL);
}
void leave() {
  ::_exit(0);
}
void stop() {
  std::raise(SIGSTOP);
}
void refuse() {
  throw DataError("no more tokens");
}

// Rank 2 is late for each of many small sums; the others print whom they waited for most.
void straggle(World& world) {
  const Tensor tensor = Tensor::full({8}, 1);
  for (int round = 0; round < 10; ++round) {
    if (world.rank() == 2) {
      std::this_thread::sleep_for(20ms);
    }
    world.group().issue(all_reduce(tensor)).wait();
  }
  int most = -1;
  Nanoseconds longest{};
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.waits()[static_cast<std::size_t>(rank)] > longest) {
      most = rank;
      longest = world.waits()[static_cast<std::size_t>(rank)];
    }
  }
  std::printf("waited most for rank %d\n", most);
}

// Each in turn gathers more than the slots hold at once.
void gather(World& world) {
  const Tensor part = Tensor::full({kLarge}, world.rank());
  const Tensor whole = Tensor::empty({kLarge * world.size()}, DType::Float32);
  for (int round = 0; round < 3; ++round) {
    world.group().issue(all_gather(whole, part, {.group = 8})).wait();
    world.group().issue(all_reduce(part, {}, {.group = 8})).wait();
  }
}

void exhaust(World& world) {
  std::vector<Tensor> kept;
  while (true) {
    kept.push_back(world.group().allocate({kLarge}, DType::Float32));
  }
}

using Scenario = std::function<void(World&)>;

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all = [] {
    std::map<std::string, Scenario> made{
        {"sum", sum}, {"gather", gather}, {"straggle", straggle}, {"exhaust", exhaust}};
    const std::map<std::string, std::function<void()>> ends{
        {"die", die}, {"leave", leave}, {"stop", stop}, {"throw", refuse}};
    for (const auto& [name, end] : ends) {
      made[name + "-before"] = [end = end](World& world) { end_before(world, end); };
      made[name + "-inside"] = [end = end](World& world) { end_inside(world, end); };
      made[name + "-after"] = [end = end](World& world) { end_after(world, end); };
    }
    return made;
  }();
  return all;
}

Links connect_by_store(const std::string& socket, int rank, int num_ranks) {
  constexpr Nanoseconds kPatience = 60s;
  Store store(store::connect_unix(socket, monotonic_clock(), kPatience),
              {.identity = {.job_id = std::string(testing::kStoreJob),
                            .rank = rank,
                            .world_size = num_ranks},
               .token = store::Secret::from_bytes(testing::kStoreToken)},
              kPatience);
  Links links = connect_gloo({.address = {.host = "127.0.0.1", .interface = {}},
                              .rendezvous = store_rendezvous(store, kPatience),
                              .timeout = kPatience},
                             rank, num_ranks);
  store.close(kPatience);
  return links;
}

void run(const std::string& scenario, int rank, int num_ranks, int segment, int ring,
         const std::string& store) {
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  World::Options options{.timeout = scenario.starts_with("stop") ? 500ms : 60s};
  // "SCENARIO/RANK": that rank is killed before it; "SCENARIO/RANK/STEP": at its step of that
  // number.
  const std::size_t slash = scenario.find('/');
  const bool is_victim =
      slash != std::string::npos && rank == std::stoi(scenario.substr(slash + 1));
  const std::size_t second = slash == std::string::npos ? slash : scenario.find('/', slash + 1);
  if (is_victim && second != std::string::npos) {
    options.delay = [left = std::stoi(scenario.substr(second + 1))]() mutable {
      if (left-- == 0) {
        die();
      }
    };
  }
  World world(store.empty() ? connect_shm(std::make_shared<const Segment>(segment), rank, false)
                            : connect_by_store(store, rank, num_ranks),
              options, FlightMemory::adopt(ring, {.rank = rank, .world_size = num_ranks}));
  try {
    if (slash != std::string::npos && second == std::string::npos) {
      world.group().issue(barrier()).wait();
      if (is_victim) {
        die();
      }
    }
    scenarios().at(scenario.substr(0, slash))(world);
  } catch (const std::exception& error) {
    world.fail(error.what());
    throw;
  }
}

}  // namespace
}  // namespace fsdptrain::comm

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) {
    return 2;
  }
  try {
    fsdptrain::comm::run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]),
                         std::atoi(argv[5]), argc == 7 ? argv[6] : "");
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 3;
  }
  return 0;
}
