#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace fsdptrain::ops {

// Tells the dropouts of one model from each other: its purpose and layer, as one number.
struct DropoutKey {
  std::uint64_t id = 0;
};

// Keeps each element with probability 1 - p and scales it by 1 / (1 - p); p in [0, 1), else
// ConfigError. x is [samples, ..., features] of 2 to 4 dimensions; what lies between is the
// position. The mask is a function of the seed, the step, the global number of the sample (the
// rank context has the first one of the micro-batch), position, feature and key: it does not
// depend on how a batch is cut, and backward computes it anew instead of storing it.
Tensor dropout(const Tensor& x, double p, DropoutKey key);

}  // namespace fsdptrain::ops
