#pragma once

#include "kernels/functors/math.h"
#include "kernels/optimizer.h"

// The updates of the flat optimizers, of one element; T is float or double.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

template <class T>
struct AdamwFactors {
  T beta1, rest1, beta2, rest2, eps, decay, step_size, inv_correction, scale;

  FSDPTRAIN_HOST_DEVICE AdamwFactors(const AdamwSegment& segment, const AdamwConstants& constants,
                                     double gradient_scale)
      : beta1(static_cast<T>(constants.beta1)),
        rest1(static_cast<T>(1 - constants.beta1)),
        beta2(static_cast<T>(constants.beta2)),
        rest2(static_cast<T>(1 - constants.beta2)),
        eps(static_cast<T>(constants.eps)),
        decay(static_cast<T>(segment.decay)),
        step_size(static_cast<T>(segment.step_size)),
        inv_correction(static_cast<T>(segment.inv_correction)),
        scale(static_cast<T>(gradient_scale)) {}
};

template <class T>
struct AdamwElement {
  T parameter, average, square;
};

template <class T>
FSDPTRAIN_HOST_DEVICE AdamwElement<T> adamw_step(AdamwElement<T> old, T unscaled,
                                                 const AdamwFactors<T>& by) {
  const T gradient = unscaled * by.scale;
  const T average = math::fma(by.beta1, old.average, by.rest1 * gradient);
  const T square = math::fma(by.beta2, old.square, by.rest2 * gradient * gradient);
  const T denominator = math::fma(math::sqrt(square), by.inv_correction, by.eps);
  return {math::fma(old.parameter, by.decay, -by.step_size * (average / denominator)), average,
          square};
}

template <class T>
struct SgdFactors {
  T lr, weight_decay, momentum, scale;

  FSDPTRAIN_HOST_DEVICE SgdFactors(const SgdSegment& segment, double momentum_factor,
                                   double gradient_scale)
      : lr(static_cast<T>(segment.lr)),
        weight_decay(static_cast<T>(segment.weight_decay)),
        momentum(static_cast<T>(momentum_factor)),
        scale(static_cast<T>(gradient_scale)) {}
};

template <class T>
FSDPTRAIN_HOST_DEVICE T decayed_gradient(T parameter, T unscaled, const SgdFactors<T>& by) {
  return math::fma(by.weight_decay, parameter, unscaled * by.scale);
}

// The parameter after a step against `direction`.
template <class T>
FSDPTRAIN_HOST_DEVICE T sgd_step(T parameter, T direction, const SgdFactors<T>& by) {
  return math::fma(-by.lr, direction, parameter);
}

FSDPTRAIN_HOST_DEVICE double clip_factor_of(double norm, double max_norm) {
  const double ratio = max_norm / (norm + 1e-6);
  // In this order a norm of NaN gives NaN.
  return 1.0 < ratio ? 1.0 : ratio;
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
