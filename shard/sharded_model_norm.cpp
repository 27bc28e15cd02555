#include <cmath>

#include "kernels/optimizer.h"
#include "runtime/base/error.h"
#include "runtime/optim/optimizer.h"
#include "shard/sharded_model.h"

// Norms of gradients that are on many ranks.
namespace fsdptrain::shard {
namespace {

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

// With what this rank adds to the norm: a sum of powers, or a maximum.
double part_of_norm(const FlatBuffer& buffer, double p, double sum) {
  const Tensor& gradients = buffer.gradients();
  for (const Range& range : buffer.ranges_of_gradients()) {
    sum = gradients.dtype() == DType::Float64
              ? part_of_norm(gradients.values<double>(), range, p, sum)
              : part_of_norm(gradients.values<float>(), range, p, sum);
  }
  return sum;
}

}  // namespace

Tensor ShardedModel::gradient_norm(double p) {
  check<ConfigError>(p > 0, "gradient norm: p must be above 0, got {}", p);
  const Device device = ranks_.device();
  check<DeviceError>(p == 2 || device.type == DeviceType::Cpu,
                     "gradient norm: on {} p must be 2, got {}", device, p);
  const Tensor numbers = used();
  Tensor norm = Tensor::over(numbers.storage(), DType::Float64, {1}, Strides::contiguous({1}), 0);
  for (const auto& unit : units_) {
    for (const FlatBuffer& buffer : unit->group().buffers()) {
      if (buffer.trainable() && p == 2) {
        kernels::add_sum_of_squares(norm.launch(), norm.view(), buffer.gradients().view(),
                                    buffer.ranges_of_gradients());
      } else if (buffer.trainable()) {
        norm.set_item(0, part_of_norm(buffer, p, norm.item(0)));
      }
    }
  }
  reduce_used(numbers, std::isinf(p) ? comm::ReduceOp::Max : comm::ReduceOp::Sum);
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
