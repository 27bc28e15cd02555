#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/optimizer_blocks.h"
#include "kernels/cuda/missing.h"

namespace fsdptrain::kernels {
namespace {

const double* scalar(const View* view) {
  return view == nullptr ? nullptr : static_cast<const double*>(view->data);
}

}  // namespace

void adamw(const Launch& launch, const View& parameters, const View& gradients, const View& exp_avg,
           const View& exp_avg_sq, std::span<const AdamwSegment> segments,
           const AdamwConstants& constants, const View* gradient_scale) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::adamw<isa>(launch, parameters, gradients, exp_avg, exp_avg_sq, segments.data(),
                        static_cast<std::int64_t>(segments.size()), constants,
                        scalar(gradient_scale));
      });
    case DeviceType::Cuda:
      cuda::missing("adamw");
    case DeviceType::Meta:
      return;
  }
}

void sgd(const Launch& launch, const View& parameters, const View& gradients, const View* momentum,
         double momentum_factor, std::span<const SgdSegment> segments, const View* gradient_scale) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      return dispatch_isa(launch.isa, [&]<Isa isa>() {
        cpu::sgd<isa>(launch, parameters, gradients, momentum, momentum_factor, segments.data(),
                      static_cast<std::int64_t>(segments.size()), scalar(gradient_scale));
      });
    case DeviceType::Cuda:
      cuda::missing("sgd");
    case DeviceType::Meta:
      return;
  }
}

void add_sum_of_squares(const Launch& launch, const View& out, const View& x,
                        std::span<const Range> ranges) {
  std::int64_t most = 0;
  for (const Range& range : ranges) {
    most = std::max(most, cpu::optimizer_blocks(range.end - range.begin));
  }
  const Allocation partials = launch.allocator->allocate(
      static_cast<std::size_t>(most) * sizeof(double), MemoryCategory::Workspace);
  switch (launch.device.type) {
    case DeviceType::Cpu: {
      auto* const sums = reinterpret_cast<double*>(partials.data());
      auto* const total = static_cast<double*>(out.data);
      for (const Range& range : ranges) {
        dispatch_isa(launch.isa,
                     [&]<Isa isa>() { cpu::sum_of_squares<isa>(launch, sums, x, range); });
        const std::int64_t blocks = cpu::optimizer_blocks(range.end - range.begin);
        for (std::int64_t block = 0; block < blocks; ++block) {
          *total += sums[block];
        }
      }
      return;
    }
    case DeviceType::Cuda:
      cuda::missing("add_sum_of_squares");
    case DeviceType::Meta:
      return;
  }
}

void sqrt_of(const Launch& launch, const View& out, const View& in) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      *static_cast<double*>(out.data) = std::sqrt(*scalar(&in));
      return;
    case DeviceType::Cuda:
      cuda::missing("sqrt_of");
    case DeviceType::Meta:
      return;
  }
}

void clip_factor(const Launch& launch, const View& out, const View& norm, double max_norm) {
  switch (launch.device.type) {
    case DeviceType::Cpu:
      // In this order a norm of NaN gives NaN.
      *static_cast<double*>(out.data) = std::min(max_norm / (*scalar(&norm) + 1e-6), 1.0);
      return;
    case DeviceType::Cuda:
      cuda::missing("clip_factor");
    case DeviceType::Meta:
      return;
  }
}

}  // namespace fsdptrain::kernels
