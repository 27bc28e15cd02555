#pragma once

#include "kernels/functors/math_core.h"

// Sine and cosine in double. Without fma, unlike the functions of math.h: what is computed from
// positions has the same bits in every variant.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {
namespace math {

struct SineCosine {
  double sine;
  double cosine;
};

// Taylor's series with the terms beyond 2^-60, by Horner, for |r| <= pi / 4 and z = r^2.
FSDPTRAIN_HOST_DEVICE double sine_series(double r, double z) {
  constexpr double kTerms[] = {
      -0x1.5555555555555p-3,  0x1.1111111111111p-7,  -0x1.a01a01a01a01ap-13, 0x1.71de3a556c734p-19,
      -0x1.ae64567f544e4p-26, 0x1.6124613a86d09p-33, -0x1.ae7f3e733b81fp-41, 0x1.952c77030ad4ap-49};
  double sum = kTerms[7];
#pragma GCC unroll 8
  for (int i = 6; i >= 0; --i) {
    sum = sum * z + kTerms[i];
  }
  return r + r * z * sum;
}
FSDPTRAIN_HOST_DEVICE double cosine_series(double z) {
  constexpr double kTerms[] = {
      0x1.5555555555555p-5,  -0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-16, -0x1.27e4fb7789f5cp-22,
      0x1.1eed8eff8d898p-29, -0x1.93974a8c07c9dp-37, 0x1.ae7f3e733b81fp-45};
  double sum = kTerms[6];
#pragma GCC unroll 8
  for (int i = 5; i >= 0; --i) {
    sum = sum * z + kTerms[i];
  }
  return (1.0 - 0.5 * z) + z * z * sum;
}

// Within 2e-16 of the exact result for 0 <= angle <= 2^26.
//
// angle = k pi/2 + r by Cody and Waite: of pi/2 in three parts the first two have 26 bits at most,
// so that their products with k are exact. The sum with 1.5 * 2^52 rounds to an integer and leaves
// it in the low bits.
FSDPTRAIN_HOST_DEVICE SineCosine sine_cosine(double angle) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPi[] = {0x1.921fb5p+0, 0x1.110b46p-26, 0x1.1a62633145c07p-54};
  constexpr double kRound = 0x1.8p52;
  const double shifted = angle * kTwoOverPi + kRound;
  const double k = shifted - kRound;
  const double r = ((angle - k * kHalfPi[0]) - k * kHalfPi[1]) - k * kHalfPi[2];
  const double z = r * r;
  const double sine = sine_series(r, z);
  const double cosine = cosine_series(z);
  const Bits<double> quadrant = to_bits(shifted);
  const bool odd = (quadrant & 1) != 0;
  // Bit 1 of the quadrant moves to the sign.
  const Bits<double> sine_sign = (quadrant & 2) << 62;
  const Bits<double> cosine_sign = ((quadrant + 1) & 2) << 62;
  return {from_bits<double>(to_bits(odd ? cosine : sine) ^ sine_sign),
          from_bits<double>(to_bits(odd ? sine : cosine) ^ cosine_sign)};
}

}  // namespace math
}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
