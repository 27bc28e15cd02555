#include "kernels/optimizer.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/optimizer.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/dispatch.h"
#include "kernels/functors/optimizer_step.h"
#include "kernels/host_array.h"

namespace fsdptrain::kernels {
namespace {

const double* scalar(const View* view) {
  return view == nullptr ? nullptr : static_cast<const double*>(view->data);
}

}  // namespace

void adamw(const Launch& launch, const View& parameters, const View& gradients, const View& exp_avg,
           const View& exp_avg_sq, std::span<const AdamwSegment> segments,
           const AdamwConstants& constants, const View* gradient_scale) {
  const double* const scale = scalar(gradient_scale);
  const auto count = static_cast<std::int64_t>(segments.size());
  run_native(
      launch, "adamw",
      [&]<Isa isa>() {
        cpu::adamw<isa>(launch, parameters, gradients, exp_avg, exp_avg_sq, segments.data(), count,
                        constants, scale);
      },
      [&] {
        cuda::adamw(launch.stream, parameters, gradients, exp_avg, exp_avg_sq, segments.data(),
                    count, constants, scale);
      });
}

void sgd(const Launch& launch, const View& parameters, const View& gradients, const View* momentum,
         double momentum_factor, std::span<const SgdSegment> segments, const View* gradient_scale) {
  const double* const scale = scalar(gradient_scale);
  const auto count = static_cast<std::int64_t>(segments.size());
  run_native(
      launch, "sgd",
      [&]<Isa isa>() {
        cpu::sgd<isa>(launch, parameters, gradients, momentum, momentum_factor, segments.data(),
                      count, scale);
      },
      [&] {
        cuda::sgd(launch.stream, parameters, gradients, momentum, momentum_factor, segments.data(),
                  count, scale);
      });
}

void add_sum_of_squares(const Launch& launch, const View& out, const View& x,
                        std::span<const Range> ranges) {
  std::int64_t most = 0;
  for (const Range& range : ranges) {
    most = std::max(most, cpu::optimizer_blocks(range.end - range.begin));
  }
  HostArray<Range> table(launch, ranges);
  const auto allocate = [most](const Launch& cpu) {
    return cpu.allocator->allocate(static_cast<std::size_t>(most) * sizeof(double),
                                   MemoryCategory::Workspace);
  };
  run_on(launch, "add_sum_of_squares", {.writes = {out}, .reads = {out, {x, ranges}}}, allocate,
         [=, table = std::move(table)]<Isa isa>(const Launch& cpu, const Allocation& partials) {
           auto* const sums = reinterpret_cast<double*>(partials.data());
           for (const Range& range : table.get()) {
             cpu::sum_of_squares<isa>(cpu, sums, x, range);
             const std::int64_t blocks = cpu::optimizer_blocks(range.end - range.begin);
             for (std::int64_t block = 0; block < blocks; ++block) {
               *static_cast<double*>(out.data) += sums[block];
             }
           }
         });
}

void sqrt_of(const Launch& launch, const View& out, const View& in) {
  run_native(
      launch, "sqrt_of", [&]<Isa>() { *static_cast<double*>(out.data) = math::sqrt(*scalar(&in)); },
      [&] { cuda::sqrt_of(launch.stream, out, in); });
}

void clip_factor(const Launch& launch, const View& out, const View& norm, double max_norm) {
  run_native(
      launch, "clip_factor",
      [&]<Isa>() { *static_cast<double*>(out.data) = clip_factor_of(*scalar(&norm), max_norm); },
      [&] { cuda::clip_factor(launch.stream, out, norm, max_norm); });
}

}  // namespace fsdptrain::kernels
