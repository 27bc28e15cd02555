#include "runtime/ops/dropout.h"

#include <cmath>

#include "kernels/dropout.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"

namespace fsdptrain::ops {
namespace {

using kernels::DropoutMask;

// Keeps dropout's streams apart from other uses of the seed.
constexpr std::uint64_t kPurpose = 0x64726F706F757400u;

DropoutMask make_mask(const Tensor& x, double p, DropoutKey key) {
  const RandomKeys& keys = current_context().random;
  const Philox mixed = philox(keys.step, key.id, keys.seed ^ kPurpose);
  DropoutMask mask;
  mask.key = std::uint64_t{mixed.word[1]} << 32 | mixed.word[0];
  mask.first_sample = keys.first_sample;
  // to_unit_interval(word) < p, as a comparison of integers: both sides are exact.
  mask.threshold = static_cast<std::uint64_t>(std::max(0.0, std::ceil(p * 0x1p32 - 0.5)));
  mask.scale = 1 / (1 - p);
  mask.samples = x.size(0);
  mask.features = x.size(-1);
  mask.positions = 1;
  for (int dim = 1; dim < x.dims() - 1; ++dim) {
    mask.positions *= x.size(dim);
  }
  return mask;
}

Tensor apply(const DropoutMask& mask, const Tensor& x) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::dropout(x.launch(), y.view(), dense(x).view(), mask);
  return y;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, DropoutKey key) {
  check_floating("dropout", x);
  check<ConfigError>(p >= 0 && p < 1, "dropout: p must be in [0, 1), got {}", p);
  check<ShapeError>(x.dims() >= 2 && x.dims() <= 4,
                    "dropout: x must be [samples, ..., features] of 2 to 4 dimensions, got {}",
                    x.shape());
  if (p == 0) {
    return x;
  }
  const DropoutMask mask = make_mask(x, p, key);
  return autograd::record("dropout", apply(mask, x), {x},
                          [mask](const Tensor& dy, autograd::GradientSink&) -> autograd::Gradients {
                            return {apply(mask, dy)};
                          });
}

}  // namespace fsdptrain::ops
