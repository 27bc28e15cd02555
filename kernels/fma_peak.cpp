#include "kernels/fma_peak.h"

#include "kernels/cpu/fma_peak.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

std::int64_t fma_work(const Launch& launch, float* sums, std::int64_t tasks,
                      std::int64_t iterations) {
  std::int64_t operations = 0;
  run_on_host(launch, "fma_work",
              [&]<Isa isa>() { operations = cpu::fma_work<isa>(launch, sums, tasks, iterations); });
  return operations;
}

}  // namespace fsdptrain::kernels
