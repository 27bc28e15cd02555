#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/optimizer.h"
#include "kernels/dispatch.h"
#include "kernels/host_array.h"

namespace fsdptrain::kernels {
namespace {

const double* scalar(const View& view) {
  return static_cast<const double*>(view.data);
}

}  // namespace

void adamw(const Launch& launch, const View& parameters, const View& gradients, const View& exp_avg,
           const View& exp_avg_sq, std::span<const AdamwSegment> segments,
           const AdamwConstants& constants, const View* gradient_scale) {
  HostArray<AdamwSegment> table(launch, segments);
  const double* const scale = gradient_scale == nullptr ? nullptr : scalar(*gradient_scale);
  run_on(launch, "adamw",
         {.writes = {parameters, exp_avg, exp_avg_sq},
          .reads = {parameters, gradients, exp_avg, exp_avg_sq, gradient_scale}},
         [=, table = std::move(table)]<Isa isa>(const Launch& cpu) {
           cpu::adamw<isa>(cpu, parameters, gradients, exp_avg, exp_avg_sq, table.get().data(),
                           static_cast<std::int64_t>(table.get().size()), constants, scale);
         });
}

void sgd(const Launch& launch, const View& parameters, const View& gradients, const View* momentum,
         double momentum_factor, std::span<const SgdSegment> segments, const View* gradient_scale) {
  HostArray<SgdSegment> table(launch, segments);
  const double* const scale = gradient_scale == nullptr ? nullptr : scalar(*gradient_scale);
  const bool has_momentum = momentum != nullptr;
  const View buffer = has_momentum ? *momentum : View{};
  run_on(launch, "sgd",
         {.writes = {parameters, momentum},
          .reads = {parameters, gradients, momentum, gradient_scale}},
         [=, table = std::move(table)]<Isa isa>(const Launch& cpu) {
           cpu::sgd<isa>(cpu, parameters, gradients, has_momentum ? &buffer : nullptr,
                         momentum_factor, table.get().data(),
                         static_cast<std::int64_t>(table.get().size()), scale);
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
  run_on(launch, "sqrt_of", {.writes = {out}, .reads = {in}},
         [=]<Isa>(const Launch&) { *static_cast<double*>(out.data) = std::sqrt(*scalar(in)); });
}

void clip_factor(const Launch& launch, const View& out, const View& norm, double max_norm) {
  run_on(launch, "clip_factor", {.writes = {out}, .reads = {norm}}, [=]<Isa>(const Launch&) {
    // In this order a norm of NaN gives NaN.
    *static_cast<double*>(out.data) = std::min(max_norm / (*scalar(norm) + 1e-6), 1.0);
  });
}

}  // namespace fsdptrain::kernels
