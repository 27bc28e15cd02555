// A process that becomes a rank by its environment: job_worker SCENARIO [JOIN_SECONDS]. It prints
// what it learned; 0 if all went well, 3 with the error's text if not.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <string>
#include <unistd.h>

#include "comm/error.h"
#include "comm/init/init.h"
#include "comm/operation.h"

namespace fsdptrain::comm {
namespace {

void run(const std::string& scenario, int join_seconds) {
  Job job =
      init_from_environment({.threads = 1, .join_timeout = std::chrono::seconds(join_seconds)});
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
  if (scenario == "break") {
    job.break_for_debugger(1);
    job.break_for_debugger(2);
  }
  world.name_group(0, 7, "h.0.mlp.weight");
  world.group().issue(barrier({.group = 7})).wait();
  job.close();
}

}  // namespace
}  // namespace fsdptrain::comm

int main(int argc, char** argv) {
  try {
    fsdptrain::comm::run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 60);
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 3;
  }
  return 0;
}
