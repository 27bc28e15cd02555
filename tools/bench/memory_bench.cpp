#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/tensor.h"
#include "tools/bench/bench.h"
#include "tools/bench/copy_roof.h"
#include "tools/bench/memory_work.h"
#include "tools/bench/timing.h"

namespace fsdptrain::tools {

Report bench_memory(std::int64_t numel, int rounds) {
  const Launch launch = current_context().launch(Device::cpu());
  const auto array = [numel](DType dtype = DType::Float32) {
    return Tensor::full({numel}, 1e-3, dtype);
  };
  // For AdamW: parameters, gradients and moments; the others use them too.
  const Tensor p = array();
  const Tensor g = array();
  const Tensor m = array();
  const Tensor v = array();
  const Tensor half = array(DType::BFloat16);
  const Tensor sum = Tensor::zeros({}, DType::Float64);
  const std::vector<kernels::Range> whole{{0, numel}};
  const std::vector<kernels::AdamwSegment> segments{
      {.begin = 0, .end = numel, .decay = 0.999, .step_size = 1e-4}};

  const auto count = static_cast<double>(numel);
  CopyRoof copy(8 * count);
  Report report = new_report("memory");
  measure_memory_work(
      report,
      {
          {"memcpy", 8 * count, [&] { copy.run(); }},
          {"copy", 8 * count, [&] { kernels::copy(launch, g.view(), p.view()); }},
          {"triad", 12 * count,
           [&] {
             kernels::map(launch, kernels::AddScaled{{}, 0.5}, g.view(), p.view(), m.view());
           }},
          {"fill", 4 * count, [&] { kernels::fill(launch, g.view(), 1e-3); }},
          {"adamw", 28 * count,
           [&] {
             kernels::adamw(launch, p.view(), g.view(), m.view(), v.view(), segments,
                            {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}, nullptr);
           }},
          {"cast_float32_to_bfloat16", 6 * count,
           [&] { kernels::copy(launch, half.view(), p.view()); }},
          {"cast_bfloat16_to_float32", 6 * count,
           [&] { kernels::copy(launch, g.view(), half.view()); }},
          {"sum_of_squares", 4 * count,
           [&] { kernels::add_sum_of_squares(launch, sum.view(), p.view(), whole); }},
      },
      rounds);
  return report;
}

}  // namespace fsdptrain::tools
