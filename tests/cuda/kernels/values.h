#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/functors/element.h"
#include "runtime/base/random.h"

namespace fsdptrain::testing {

// Numbers of either sign around 1, with zeros of both signs, an infinity and subnormal ones among
// them; integers use all of their bits.
template <class T>
std::vector<T> some_values(std::int64_t count, std::uint64_t seed) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const Philox bits = philox(static_cast<std::uint64_t>(i), 0, seed);
    if constexpr (kernels::kIsInteger<T>) {
      values.push_back(static_cast<T>(std::uint64_t{bits.word[0]} << 32 | bits.word[1]));
    } else {
      using V = kernels::OpMath<T>;
      auto value = static_cast<V>(8 * to_unit_interval(bits.word[0]) - 4);
      switch (bits.word[1] % 32) {
        case 0:
          value = V(0);
          break;
        case 1:
          value = -V(0);
          break;
        case 2:
          value = std::numeric_limits<V>::infinity();
          break;
        case 3:
          value *= std::numeric_limits<V>::min() / 4;
          break;
        default:
          break;
      }
      values.push_back(kernels::Store<T>::to(value));
    }
  }
  return values;
}

}  // namespace fsdptrain::testing
