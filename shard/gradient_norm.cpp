#include <cmath>

#include "kernels/optimizer.h"
#include "runtime/base/error.h"
#include "runtime/optim/optimizer.h"
#include "shard/fully_shard.h"

// Norms of gradients that are on many ranks.
namespace fsdptrain::shard {
namespace {

std::vector<kernels::Range> active_ranges(const nn::FlatChunk& chunk) {
  std::vector<kernels::Range> ranges;
  for (const nn::Segment& segment : chunk.segments) {
    if (segment.active) {
      ranges.push_back({segment.begin, segment.end});
    }
  }
  return ranges;
}

template <class T>
double part_of_norm(std::span<const T> values, const kernels::Range& range, double p, double sum) {
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const double size = std::abs(static_cast<double>(values[static_cast<std::size_t>(i)]));
    if (!std::isinf(p)) {
      sum += std::pow(size, p);
    } else if (!(size <= sum)) {
      // NaN stays.
      sum = std::isnan(sum) ? sum : size;
    }
  }
  return sum;
}

// What this rank adds to the norm: a sum of powers, or a maximum.
double part_of_norm(const std::vector<nn::FlatChunk>& chunks, double p) {
  double sum = 0;
  for (const nn::FlatChunk& chunk : chunks) {
    for (const kernels::Range& range : active_ranges(chunk)) {
      const Tensor& gradients = chunk.gradients;
      sum = gradients.dtype() == DType::Float64
                ? part_of_norm(gradients.values<double>(), range, p, sum)
                : part_of_norm(gradients.values<float>(), range, p, sum);
    }
  }
  return sum;
}

}  // namespace

Tensor ShardedModel::gradient_norm(double p) {
  check<ConfigError>(p > 0, "gradient norm: p must be above 0, got {}", p);
  const Device device = ranks_.device();
  check<DeviceError>(p == 2 || device.type == DeviceType::Cpu,
                     "gradient norm: on {} p must be 2, got {}", device, p);
  Tensor norm = Tensor::zeros({1}, DType::Float64, device);
  if (p == 2) {
    for (const nn::FlatChunk& chunk : chunks()) {
      kernels::add_sum_of_squares(norm.launch(), norm.view(), chunk.gradients.view(),
                                  active_ranges(chunk));
    }
  } else {
    norm.set_item(0, part_of_norm(chunks(), p));
  }
  if (ranks_.size() > 1) {
    const comm::Reduction reduction{.op =
                                        std::isinf(p) ? comm::ReduceOp::Max : comm::ReduceOp::Sum};
    ranks_.issue(comm::all_reduce(norm, reduction, {.root = options_.root})).wait();
  }
  if (p == 2) {
    kernels::sqrt_of(norm.launch(), norm.view(), norm.view());
  } else if (!std::isinf(p)) {
    norm.set_item(0, std::pow(norm.item(0), 1 / p));
  }
  return norm;
}

ShardedModel::Clipped ShardedModel::clip_grad_norm(double max_norm, double p) {
  Clipped clipped;
  clipped.norm = gradient_norm(p);
  clipped.scale = optim::clip_factor(clipped.norm, max_norm);
  return clipped;
}

}  // namespace fsdptrain::shard
