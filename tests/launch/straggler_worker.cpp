// One rank whose work takes a while in each step, and of rank 2 a fifth longer; rank 0 prints what
// training would write into its metrics: whom the others waited for.

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <thread>

#include "comm/init/init.h"
#include "tools/train/rank_waits.h"

namespace fsdptrain::tools {
namespace {

using namespace std::chrono_literals;

constexpr int kSteps = 40;

void run() {
  comm::Job job = comm::init_from_environment({.threads = 1});
  comm::World& world = job.world();
  RankWaits waits(world);
  const Tensor gradient = Tensor::full({64}, 1, DType::Float32);
  for (int step = 0; step < kSteps; ++step) {
    std::this_thread::sleep_for(world.rank() == 2 ? 60ms : 50ms);
    world.group().issue(comm::all_reduce(gradient)).wait();
  }
  const std::optional<WaitSummary> summary = waits.summary();
  if (world.rank() == 0 && summary) {
    std::printf("straggler %d of %zu\n", summary->straggler.value_or(-1),
                summary->wait_seconds.size());
  }
  job.close();
}

}  // namespace
}  // namespace fsdptrain::tools

int main() {
  try {
    fsdptrain::tools::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
