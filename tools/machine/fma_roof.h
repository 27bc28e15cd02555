#pragma once

namespace fsdptrain::tools {

// Operations per second of multiply-and-add in registers, float32, on one thread and on all of the
// bound rank context: the best of some short runs, because what disturbs them only slows them.
struct FmaRoof {
  double one_thread = 0;
  double all_threads = 0;
};
FmaRoof measure_fma_roof();

// On all threads, by shorter runs that together take about `seconds`.
double measure_fma_rate(double seconds);

}  // namespace fsdptrain::tools
