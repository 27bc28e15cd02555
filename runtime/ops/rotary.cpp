#include "runtime/ops/rotary.h"

#include <cmath>
#include <numbers>

#include "kernels/rotary.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::record;
using autograd::SavedTensor;

double scaled(double frequency, const RotaryScaling& scaling) {
  switch (scaling.kind) {
    case RotaryScaling::Kind::None:
      return frequency;
    case RotaryScaling::Kind::Linear:
      return frequency / scaling.factor;
    case RotaryScaling::Kind::Llama3:
      break;
  }
  const auto original = static_cast<double>(scaling.original_max_position);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original / scaling.high_freq_factor) {
    return frequency;
  }
  if (wavelength > original / scaling.low_freq_factor) {
    return frequency / scaling.factor;
  }
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

void check_scaling(const RotaryScaling& scaling) {
  constexpr const char* kOp = "rotary_frequencies";
  check<ConfigError>(std::isfinite(scaling.factor) && scaling.factor >= 1,
                     "{}: the factor must be at least 1, got {}", kOp, scaling.factor);
  if (scaling.kind == RotaryScaling::Kind::Llama3) {
    check<ConfigError>(
        scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor,
        "{}: low_freq_factor must be positive and below high_freq_factor, got {} and {}", kOp,
        scaling.low_freq_factor, scaling.high_freq_factor);
    check<ConfigError>(scaling.original_max_position >= 1,
                       "{}: original_max_position must be at least 1, got {}", kOp,
                       scaling.original_max_position);
  }
}

void check_rotary(const Tensor& x, const Tensor& positions, std::span<const double> frequencies) {
  constexpr const char* kOp = "rotary";
  check_floating(kOp, x);
  check_defined(kOp, positions);
  check<DTypeError>(positions.dtype() == DType::Int64, "{}: positions must be int64, got {}", kOp,
                    positions.dtype());
  check_same_device(kOp, x, positions);
  check<ShapeError>(x.dims() == 4 && positions.shape() == Shape{x.size(0), x.size(1)},
                    "{}: positions of shape {} do not fit x [batch, token, head, feature] of "
                    "shape {}",
                    kOp, positions.shape(), x.shape());
  check<ShapeError>(static_cast<std::int64_t>(frequencies.size()) * 2 == x.size(3),
                    "{}: {} frequencies do not fit heads of size {}: there is one for two features",
                    kOp, frequencies.size(), x.size(3));
  for (const double frequency : frequencies) {
    check<ConfigError>(0 <= frequency && frequency <= 1,
                       "{}: frequencies must be in [0, 1], got {}", kOp, frequency);
  }
  if (positions.device().type != DeviceType::Cpu) {
    return;
  }
  const Tensor dense_positions = dense(positions);
  std::int64_t token = 0;
  for (const std::int64_t position : dense_positions.values<std::int64_t>()) {
    check<ShapeError>(0 <= position && position <= kMaxRotaryPosition,
                      "{}: the position of token {} must be in [0, {}], got {}", kOp, token,
                      kMaxRotaryPosition, position);
    ++token;
  }
}

Tensor rotate(const Tensor& x, const Tensor& positions, std::span<const double> frequencies,
              bool inverse) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels::rotary(x.launch(), {.out_BTHD = y.view(),
                               .in_BTHD = x.view(),
                               .positions_BT = positions.view(),
                               .frequencies = frequencies.data(),
                               .inverse = inverse});
  return y;
}

}  // namespace

std::vector<double> rotary_frequencies(std::int64_t head_size, double theta,
                                       const RotaryScaling& scaling) {
  constexpr const char* kOp = "rotary_frequencies";
  check<ConfigError>(head_size >= 2 && head_size % 2 == 0,
                     "{}: the head size must be even and at least 2, got {}", kOp, head_size);
  check<ConfigError>(std::isfinite(theta) && theta >= 1, "{}: theta must be at least 1, got {}",
                     kOp, theta);
  check_scaling(scaling);
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_size / 2; ++i) {
    // In long double: of pow() in double there is more than one version, which differ in bits.
    const long double exponent =
        -2 * static_cast<long double>(i) / static_cast<long double>(head_size);
    const auto frequency = static_cast<double>(std::pow(static_cast<long double>(theta), exponent));
    frequencies.push_back(scaled(frequency, scaling));
  }
  return frequencies;
}

Tensor rotary(const Tensor& x_BTHD, const Tensor& positions_BT,
              std::span<const double> frequencies) {
  check_rotary(x_BTHD, positions_BT, frequencies);
  return record("rotary", rotate(x_BTHD, positions_BT, frequencies, false), {x_BTHD},
                [positions = SavedTensor(positions_BT),
                 frequencies = std::vector(frequencies.begin(), frequencies.end())](
                    const Tensor& dy_BTHD, GradientSink&) -> Gradients {
                  return {rotate(dy_BTHD, positions.get(), frequencies, true)};
                });
}

}  // namespace fsdptrain::ops
