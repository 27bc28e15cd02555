// A process that becomes a rank by its environment: job_worker SCENARIO [JOIN_SECONDS
// [NOTICE_SECONDS]]. It prints what it learned; 0 if all went well, 3 with the error's text if not.

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <string>
#include <unistd.h>

#include "comm/clock.h"
#include "comm/error.h"
#include "comm/init/init.h"
#include "comm/operation.h"

namespace fsdptrain::comm {
namespace {

// As training does, but that rank 2 stops between two parameters of layer 3.
void reduce_layers(World& world) {
  constexpr const char* kParameters[] = {"attn.weight", "mlp.weight"};
  std::uint32_t group = 0;
  for (int layer = 0; layer < 6; ++layer) {
    for (const char* parameter : kParameters) {
      world.name_group(0, group++, fmt::format("h.{}.{}", layer, parameter));
    }
  }
  const Tensor gradient = Tensor::full({64}, 1, DType::Float32);
  for (std::uint32_t i = 0; i < group; ++i) {
    if (world.rank() == 2 && i == 7) {
      std::raise(SIGSTOP);
    }
    world.group()
        .issue(all_reduce(gradient, {}, {.group = i, .direction = Direction::Backward}))
        .wait();
  }
}

// Rank 0 has more to do than the others.
void close_last(Job& job) {
  if (job.world().rank() == 0) {
    std::getchar();
  }
  const auto now = [] { return monotonic_clock().now().count(); };
  std::printf("done %" PRId64 "\n", now());
  std::fflush(stdout);
  job.close();
  std::printf("left %" PRId64 "\n", now());
}

void run(const std::string& scenario, int join_seconds, int notice_seconds) {
  const int timeout = scenario == "layers" ? 4 : 600;
  Job job = init_from_environment({.world = {.timeout = std::chrono::seconds(timeout)},
                                   .threads = 1,
                                   .join_timeout = std::chrono::seconds(join_seconds),
                                   .notice_after = std::chrono::seconds(notice_seconds)});
  World& world = job.world();
  const Tensor sum = Tensor::full({1}, world.rank() + 1, DType::Int64);
  world.group().issue(all_reduce(sum)).wait();
  std::printf("rank %d of %d sum %d threads %d\n", world.rank(), world.size(),
              static_cast<int>(sum.item()), current_context().pool().threads());
  std::fflush(stdout);
  if (scenario == "throw" && world.rank() == 1) {
    job.fail("no more tokens");
    return;
  }
  if (scenario == "die" && world.rank() == 1) {
    std::raise(SIGKILL);
  }
  if (scenario == "leave" && world.rank() == 1) {
    // Without a goodbye.
    return;
  }
  if (scenario == "stuck" && world.rank() == 1) {
    std::getchar();
  }
  if (scenario == "layers") {
    reduce_layers(world);
  }
  if (scenario == "break") {
    job.break_for_debugger(1);
    job.break_for_debugger(2);
  }
  world.name_group(0, 7, "h.0.mlp.weight");
  world.group().issue(barrier({.group = 7})).wait();
  if (scenario == "last") {
    close_last(job);
  } else {
    job.close();
  }
}

}  // namespace
}  // namespace fsdptrain::comm

int main(int argc, char** argv) {
  try {
    fsdptrain::comm::run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 60,
                         argc > 3 ? std::atoi(argv[3]) : 1000);
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 3;
  }
  return 0;
}
