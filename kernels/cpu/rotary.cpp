#include "kernels/cpu/rotary.h"

#include "kernels/cpu/lanes.h"
#include "kernels/functors/element.h"
#include "kernels/functors/math_trig.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Pairs whose angles are at hand at a time.
constexpr std::int64_t kRotaryPairs = 128;

template <class T>
struct Rotation {
  T cosine[kRotaryPairs];
  T sine[kRotaryPairs];
};

template <class T>
FSDPTRAIN_HOST_DEVICE void fill_rotation(Rotation<T>& rotation, const double* frequencies,
                                         double position, std::int64_t pairs, T sign) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < pairs; ++i) {
    const math::SineCosine turn = math::sine_cosine(position * frequencies[i]);
    rotation.cosine[i] = static_cast<T>(turn.cosine);
    rotation.sine[i] = sign * static_cast<T>(turn.sine);
  }
}

// Products and a sum, not fma: see math_trig.h.
template <class E, class T>
FSDPTRAIN_HOST_DEVICE void rotate_pairs(E* low_out, E* high_out, std::int64_t out_stride,
                                        const E* low_in, const E* high_in, std::int64_t in_stride,
                                        const Rotation<T>& rotation, std::int64_t pairs) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < pairs; ++i) {
    const T low = load(low_in[i * in_stride]);
    const T high = load(high_in[i * in_stride]);
    low_out[i * out_stride] = Store<E>::to(low * rotation.cosine[i] - high * rotation.sine[i]);
    high_out[i * out_stride] = Store<E>::to(high * rotation.cosine[i] + low * rotation.sine[i]);
  }
}

// All heads of one token.
template <class E>
FSDPTRAIN_HOST_DEVICE void rotate_token(const Rotary& args, std::int64_t batch,
                                        std::int64_t token) {
  using T = OpMath<E>;
  const View& in = args.in_BTHD;
  const View& out = args.out_BTHD;
  const View& positions = args.positions_BT;
  const auto position = static_cast<double>(static_cast<const std::int64_t*>(
      positions.data)[batch * positions.strides[0] + token * positions.strides[1]]);
  const E* const from =
      static_cast<const E*>(in.data) + batch * in.strides[0] + token * in.strides[1];
  E* const to = static_cast<E*>(out.data) + batch * out.strides[0] + token * out.strides[1];
  const std::int64_t half = in.sizes[3] / 2;
  const std::int64_t in_stride = in.strides[3];
  const std::int64_t out_stride = out.strides[3];
  Rotation<T> rotation;
  for (std::int64_t begin = 0; begin < half; begin += kRotaryPairs) {
    const std::int64_t pairs = min(kRotaryPairs, half - begin);
    fill_rotation(rotation, args.frequencies + begin, position, pairs, args.inverse ? T(-1) : T(1));
    for (std::int64_t head = 0; head < in.sizes[2]; ++head) {
      const E* const low_in = from + head * in.strides[2] + begin * in_stride;
      E* const low_out = to + head * out.strides[2] + begin * out_stride;
      const E* const high_in = low_in + half * in_stride;
      E* const high_out = low_out + half * out_stride;
      // Known strides, or the loop would not vectorise.
      if (in_stride == 1 && out_stride == 1) {
        rotate_pairs(low_out, high_out, 1, low_in, high_in, 1, rotation, pairs);
      } else {
        rotate_pairs(low_out, high_out, out_stride, low_in, high_in, in_stride, rotation, pairs);
      }
    }
  }
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::rotary<kIsa>(const Launch& launch, const Rotary& args) {
  const View& in = args.in_BTHD;
  dispatch_floating(in.dtype, [&]<class E>() {
    parallel_units(launch, in.sizes[0] * in.sizes[1], in.sizes[2] * in.sizes[3],
                   [&](std::int64_t token) {
                     rotate_token<E>(args, token / in.sizes[1], token % in.sizes[1]);
                   });
  });
}

}  // namespace fsdptrain::kernels
