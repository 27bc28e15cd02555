#include "kernels/cpu/dropout.h"

#include "kernels/cpu/lanes.h"
#include "runtime/base/random.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Groups of four features that are drawn at a time.
inline constexpr std::int64_t kGroups = 64;

// words[4 * g + w]: word w of group first + g.
FSDPTRAIN_HOST_DEVICE void draw(std::uint32_t* words, std::uint64_t sample, std::uint64_t position,
                                std::uint64_t first, std::uint64_t key) {
  std::uint32_t by_word[4][kGroups];
  for (std::uint64_t group = 0; group < kGroups; ++group) {
    const Philox bits = philox(sample, position << 32 | (first + group), key);
    by_word[0][group] = bits.word[0];
    by_word[1][group] = bits.word[1];
    by_word[2][group] = bits.word[2];
    by_word[3][group] = bits.word[3];
  }
  for (std::int64_t group = 0; group < kGroups; ++group) {
    for (int word = 0; word < 4; ++word) {
      words[4 * group + word] = by_word[word][group];
    }
  }
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::dropout<kIsa>(const Launch& launch, const View& out, const View& in,
                        const DropoutMask& mask) {
  dispatch_floating(in.dtype, [&]<class T>() {
    using V = OpMath<T>;
    const V scale = static_cast<V>(mask.scale);
    parallel_units(launch, mask.samples * mask.positions, mask.features, [&](std::int64_t row) {
      const T* x = static_cast<const T*>(in.data) + row * mask.features;
      T* y = static_cast<T*>(out.data) + row * mask.features;
      const std::uint64_t sample =
          mask.first_sample + static_cast<std::uint64_t>(row / mask.positions);
      const auto position = static_cast<std::uint64_t>(row % mask.positions);
      for (std::int64_t begin = 0; begin < mask.features; begin += 4 * kGroups) {
        std::uint32_t words[4 * kGroups];
        draw(words, sample, position, static_cast<std::uint64_t>(begin / 4), mask.key);
        const std::int64_t count = min(4 * kGroups, mask.features - begin);
#pragma GCC ivdep
        for (std::int64_t i = 0; i < count; ++i) {
          const V kept = load(x[begin + i]) * scale;
          y[begin + i] = Store<T>::to(words[i] < mask.threshold ? V(0) : kept);
        }
      }
    });
  });
}

}  // namespace fsdptrain::kernels
