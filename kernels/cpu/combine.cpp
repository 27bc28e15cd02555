#include "kernels/cpu/combine.h"

#include "kernels/cpu/parallel.h"
#include "kernels/functors/arithmetic.h"
#include "kernels/functors/binary_counter.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Neighbouring parts that one loop reads: a whole subtree of every tree that has them.
inline constexpr int kGroup = 4;
// Where there are more, partial results of a block lie in buffers: of this size, so that those
// under way stay in the first level cache.
inline constexpr std::int64_t kBlockBytes = 4096;
// Bits of the largest number of groups.
inline constexpr int kCounterLevels = 9;
static_assert(kMaxParts / kGroup < (1 << kCounterLevels));
// Of one part, in up to kGroup of them; of each of more as much less.
inline constexpr std::int64_t kCombineTaskBytes = 65536;

// Whether there is a factor and a scale.
template <class F, class V>
inline constexpr bool kScales = __is_same(F, Add) && !kIsInteger<V>;

template <class V>
struct Factors {
  V factor;
  V scale;
};

template <class F, class T>
FSDPTRAIN_HOST_DEVICE OpMath<T> load_part(T x, OpMath<T> factor) {
  if constexpr (kScales<F, OpMath<T>>) {
    return load(x) * factor;
  } else {
    return load(x);
  }
}

template <class F, class Out, class V>
FSDPTRAIN_HOST_DEVICE Out to_result(V value, V scale) {
  if constexpr (kScales<F, V>) {
    return Store<Out>::to(value * scale);
  } else {
    return Store<Out>::to(value);
  }
}

// to[i] = the subtree of `count` parts, from their element `begin` on; `to` may be one of them.
template <int count, class F, class To, class T>
[[gnu::noinline]] void combine_group(To* to, const void* const* parts, std::int64_t begin,
                                     std::int64_t numel, Factors<OpMath<T>> by) {
  using V = OpMath<T>;
  const T* const a = static_cast<const T*>(parts[0]) + begin;
  const T* const b = count > 1 ? static_cast<const T*>(parts[1]) + begin : nullptr;
  const T* const c = count > 2 ? static_cast<const T*>(parts[2]) + begin : nullptr;
  const T* const d = count > 3 ? static_cast<const T*>(parts[3]) + begin : nullptr;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < numel; ++i) {
    V value = load_part<F>(a[i], by.factor);
    if constexpr (count > 1) {
      value = apply(F{}, value, load_part<F>(b[i], by.factor));
    }
    if constexpr (count == 3) {
      value = apply(F{}, value, load_part<F>(c[i], by.factor));
    }
    if constexpr (count == 4) {
      value = apply(F{}, value,
                    apply(F{}, load_part<F>(c[i], by.factor), load_part<F>(d[i], by.factor)));
    }
    to[i] = to_result<F, To>(value, by.scale);
  }
}

template <class F, class To, class T>
FSDPTRAIN_HOST_DEVICE void combine_up_to_group(To* to, const void* const* parts, int count,
                                               std::int64_t begin, std::int64_t numel,
                                               Factors<OpMath<T>> by) {
  static_assert(kGroup == 4);
  switch (count) {
    case 1:
      return combine_group<1, F, To, T>(to, parts, begin, numel, by);
    case 2:
      return combine_group<2, F, To, T>(to, parts, begin, numel, by);
    case 3:
      return combine_group<3, F, To, T>(to, parts, begin, numel, by);
    default:
      return combine_group<4, F, To, T>(to, parts, begin, numel, by);
  }
}

// left[i] = left[i] + right[i], or the smaller or larger.
template <class F, class V>
[[gnu::noinline]] V* merge_blocks(V* __restrict left, const V* __restrict right,
                                  std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    left[i] = apply(F{}, left[i], right[i]);
  }
  return left;
}

// to[i] = the tree of more parts than a group has, over at most a block of elements. `to` is
// written when all parts have been read.
template <class F, class To, class T>
[[gnu::noinline]] void combine_block(To* to, const cpu::PartArrays& parts, std::int64_t begin,
                                     std::int64_t numel, Factors<OpMath<T>> by) {
  using V = OpMath<T>;
  alignas(64) V buffers[kCounterLevels][kBlockBytes / sizeof(V)];
  const auto merge = [numel](V* left, const V* right) {
    return merge_blocks<F>(left, right, numel);
  };
  // The value at place k is in buffer k: a merged one stays in that of its left half.
  BinaryCounter<V*, kCounterLevels> counter;
  for (int first = 0; first < parts.count; first += kGroup) {
    V* const group = buffers[counter.size()];
    combine_up_to_group<F, V, T>(group, parts.data + first,
                                 static_cast<int>(min(kGroup, parts.count - first)), begin, numel,
                                 {by.factor, V(1)});
    counter.push(group, merge);
  }
  const V* const result = counter.finish(merge);
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = to_result<F, To>(result[i], by.scale);
  }
}

template <class F, class To, class T>
FSDPTRAIN_HOST_DEVICE void combine_typed(const Launch& launch, void* out,
                                         const cpu::PartArrays& parts,
                                         const CombineOptions& options) {
  using V = OpMath<T>;
  const Factors<V> by{static_cast<V>(options.factor), static_cast<V>(options.scale)};
  To* const to = static_cast<To*>(out);
  constexpr auto kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(V));
  const std::int64_t groups = ceil_div(parts.count, kGroup);
  const std::int64_t blocks_per_task = max(1, kCombineTaskBytes / kBlockBytes / groups);
  parallel_blocks(
      launch, parts.numel, blocks_per_task * kBlock, [&](std::int64_t begin, std::int64_t end) {
        if (groups == 1) {
          combine_up_to_group<F, To, T>(to + begin, parts.data, parts.count, begin, end - begin,
                                        by);
          return;
        }
        for (; begin < end; begin += kBlock) {
          combine_block<F, To, T>(to + begin, parts, begin, min(kBlock, end - begin), by);
        }
      });
}

// Calls fn<To, T>() for the dtypes of out and of the parts, which go together.
template <class Fn>
FSDPTRAIN_HOST_DEVICE void dispatch_results(DType out, DType parts, const Fn& fn) {
  dispatch_any(parts, [&]<class T>() {
    if (out == parts) {
      return fn.template operator()<T, T>();
    }
    if constexpr (__is_same(T, float)) {
      return out == DType::BFloat16 ? fn.template operator()<bfloat16, float>()
                                    : fn.template operator()<float16, float>();
    } else if constexpr (!__is_same(T, OpMath<T>)) {
      return fn.template operator()<OpMath<T>, T>();
    }
  });
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::combine<kIsa>(const Launch& launch, const CombineOut& out, const PartArrays& parts,
                        const CombineOptions& options) {
  dispatch_results(out.dtype, parts.dtype, [&]<class To, class T>() {
    switch (options.op) {
      case CombineOp::Sum:
        return combine_typed<Add, To, T>(launch, out.data, parts, options);
      case CombineOp::Min:
        return combine_typed<Minimum, To, T>(launch, out.data, parts, options);
      case CombineOp::Max:
        return combine_typed<Maximum, To, T>(launch, out.data, parts, options);
    }
  });
}

}  // namespace fsdptrain::kernels
