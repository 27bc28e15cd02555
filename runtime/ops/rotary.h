#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/tensor/tensor.h"

// Rotary position embedding (Su et al., arXiv 2104.09864) in the convention of Hugging Face's
// weights: the pairs that are turned are x[i] and x[i + D / 2].
//
// Shape suffixes: B batch, T tokens, H heads, D head size.
namespace fsdptrain::ops {

// How frequencies are stretched for contexts beyond those of the training.
struct RotaryScaling {
  enum class Kind {
    None,
    // Every frequency divided by `factor`.
    Linear,
    // Long wavelengths (over original_max_position / low_freq_factor) divided by `factor`, short
    // ones (under original_max_position / high_freq_factor) kept, those between interpolated.
    Llama3,
  };
  Kind kind = Kind::None;
  double factor = 1;
  // Llama3 only.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position = 8192;
};

// Angles for each step of the position, head_size / 2 of them: theta^(-2i / head_size), scaled.
// The formulas are those of Hugging Face's "default", "linear" and "llama3" rope types. ConfigError
// for a head size that is odd, theta or a factor below 1, and the like.
std::vector<double> rotary_frequencies(std::int64_t head_size, double theta,
                                       const RotaryScaling& scaling = {});

// Each head's pair i of x [B, T, H, D] turned by the angle position * frequencies[i]: D / 2
// frequencies in [0, 1], int64 positions [B, T] in [0, kMaxRotaryPosition], else ShapeError (on
// meta there is nothing to look at). Angles, sines and cosines are computed in double. x may be
// strided, a part of a packed projection for example; the result is dense. Its bits depend neither
// on threads nor on the ISA variant.
Tensor rotary(const Tensor& x_BTHD, const Tensor& positions_BT,
              std::span<const double> frequencies);

inline constexpr std::int64_t kMaxRotaryPosition = std::int64_t{1} << 24;

}  // namespace fsdptrain::ops
