#pragma once

#include "kernels/functors/math_exp.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {
namespace math {

// erf(x) / x - 1, over z = x^2, for |x| <= 1, with erf to 2^-29 (float), 2^-62 (double).
FSDPTRAIN_HOST_DEVICE float erf_tail(float z) {
  return polynomial(z, 1.2837917e-01f, -3.7612626e-01f, 1.12835854e-01f, -2.6853811e-02f,
                    5.1883277e-03f, -8.0101937e-04f, 7.853861e-05f);
}
FSDPTRAIN_HOST_DEVICE double erf_tail(double z) {
  return polynomial(z, 0.1283791670955126, -0.3761263890318375, 0.11283791670954857,
                    -0.026866170645072893, 0.005223977624780862, -0.000854832697874194,
                    0.0001205533103689036, -1.4925593506671345e-05, 1.646097281353705e-06,
                    -1.6350025185895177e-07, 1.4657879597306717e-08, -1.136566502864451e-09,
                    5.945260200617797e-11);
}

// log(1 - erf(x)), over t = x - 1.5, for x in [1, kErfOne], with erf to 2^-29 (float), 2^-59.
// The centre is where the result still needs every bit: far from it terms cancel, but there
// 1 - erf is too small to matter.
FSDPTRAIN_HOST_DEVICE float log_erfc(float t) {
  return polynomial(t, -3.3844922e+00f, -3.5088012e+00f, -8.926418e-01f, -2.5820378e-02f,
                    6.0213865e-03f, -1.2694412e-03f, 1.8557398e-04f);
}
FSDPTRAIN_HOST_DEVICE double log_erfc(double t) {
  return polynomial(
      t, -3.3844920895515527, -3.508800801779527, -0.8926403306150341, -0.02582414063369512,
      0.006006746386314068, -0.001257216685834086, 0.00021596330658846534, -2.2473697042190562e-05,
      -2.64684038772793e-06, 2.3708821592839727e-06, -8.187779892648738e-07, 1.9250558259875339e-07,
      -2.77381739863017e-08, -1.0695088095477459e-09, 2.227991878701168e-09, -7.917929323941783e-10,
      1.6306033637752538e-10, -1.9463550376503732e-11, 1.039096780493541e-12);
}

// From here on erf is 1 in T.
template <class T>
inline constexpr T kErfOne = T(6);
template <>
inline constexpr float kErfOne<float> = 4.0f;

template <class T>
FSDPTRAIN_HOST_DEVICE T erf(T x) {
  const T magnitude = abs(x);
  const T small = fma(x, erf_tail(x * x), x);
  const T bounded = magnitude > kErfOne<T> ? kErfOne<T> : magnitude;
  const T large = T(1) - exp_in_range(log_erfc(bounded - T(1.5)));
  return magnitude <= T(1) ? small : copy_sign(large, x);
}

}  // namespace math
}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
