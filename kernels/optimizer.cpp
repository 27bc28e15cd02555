#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/optimizer.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {
namespace {

const double* scalar(const View* view) {
  return view == nullptr ? nullptr : static_cast<const double*>(view->data);
}

}  // namespace

void adamw(const Launch& launch, const View& parameters, const View& gradients, const View& exp_avg,
           const View& exp_avg_sq, std::span<const AdamwSegment> segments,
           const AdamwConstants& constants, const View* gradient_scale) {
  run_on(launch, "adamw", [&]<Isa isa>() {
    cpu::adamw<isa>(launch, parameters, gradients, exp_avg, exp_avg_sq, segments.data(),
                    static_cast<std::int64_t>(segments.size()), constants, scalar(gradient_scale));
  });
}

void sgd(const Launch& launch, const View& parameters, const View& gradients, const View* momentum,
         double momentum_factor, std::span<const SgdSegment> segments, const View* gradient_scale) {
  run_on(launch, "sgd", [&]<Isa isa>() {
    cpu::sgd<isa>(launch, parameters, gradients, momentum, momentum_factor, segments.data(),
                  static_cast<std::int64_t>(segments.size()), scalar(gradient_scale));
  });
}

void add_sum_of_squares(const Launch& launch, const View& out, const View& x,
                        std::span<const Range> ranges) {
  std::int64_t most = 0;
  for (const Range& range : ranges) {
    most = std::max(most, cpu::optimizer_blocks(range.end - range.begin));
  }
  const Allocation partials = launch.allocator->allocate(
      static_cast<std::size_t>(most) * sizeof(double), MemoryCategory::Workspace);
  run_on(launch, "add_sum_of_squares", [&]<Isa isa>() {
    auto* const sums = reinterpret_cast<double*>(partials.data());
    for (const Range& range : ranges) {
      cpu::sum_of_squares<isa>(launch, sums, x, range);
      const std::int64_t blocks = cpu::optimizer_blocks(range.end - range.begin);
      for (std::int64_t block = 0; block < blocks; ++block) {
        *static_cast<double*>(out.data) += sums[block];
      }
    }
  });
}

void sqrt_of(const Launch& launch, const View& out, const View& in) {
  run_on(launch, "sqrt_of",
         [&]<Isa>() { *static_cast<double*>(out.data) = std::sqrt(*scalar(&in)); });
}

void clip_factor(const Launch& launch, const View& out, const View& norm, double max_norm) {
  run_on(launch, "clip_factor", [&]<Isa>() {
    // In this order a norm of NaN gives NaN.
    *static_cast<double*>(out.data) = std::min(max_norm / (*scalar(&norm) + 1e-6), 1.0);
  });
}

}  // namespace fsdptrain::kernels
