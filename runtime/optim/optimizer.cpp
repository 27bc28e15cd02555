#include "runtime/optim/optimizer.h"

#include "kernels/optimizer.h"
#include "runtime/base/error.h"
#include "runtime/optim/chunk_checks.h"

namespace fsdptrain::optim {

Tensor gradient_norm(const std::vector<nn::FlatChunk>& chunks) {
  check_chunks("gradient_norm", chunks);
  const Device device = chunks.empty() ? Device::cpu() : chunks.front().gradients.device();
  const Tensor norm = Tensor::zeros({1}, DType::Float64, device);
  for (const nn::FlatChunk& chunk : chunks) {
    std::vector<kernels::Range> ranges;
    for (const nn::Segment& segment : chunk.segments) {
      if (segment.active) {
        ranges.push_back({segment.begin, segment.end});
      }
    }
    kernels::add_sum_of_squares(norm.launch(), norm.view(), chunk.gradients.view(), ranges);
  }
  kernels::sqrt_of(norm.launch(), norm.view(), norm.view());
  return norm;
}

Tensor clip_factor(const Tensor& norm, double max_norm) {
  check<DTypeError>(
      norm.defined() && norm.dtype() == DType::Float64 && norm.numel() == 1,
      "clip_factor: the norm must be one float64, from gradient_norm() with {} as max", max_norm);
  const Tensor factor = Tensor::empty({1}, DType::Float64, norm.device());
  kernels::clip_factor(norm.launch(), factor.view(), norm.view(), max_norm);
  return factor;
}

}  // namespace fsdptrain::optim
