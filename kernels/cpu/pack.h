#pragma once

#include "kernels/cpu/parallel.h"
#include "kernels/functors/math.h"

// Vectors of the width that a variant has.
namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

constexpr int pack_bytes(Isa isa) {
  switch (isa) {
    case Isa::Baseline:
      return 16;
    case Isa::Avx2:
      return 32;
    case Isa::Avx512:
      return 64;
  }
  __builtin_unreachable();
}
inline constexpr int kPackBytes = pack_bytes(kIsa);

// One vector register. Arithmetic on it is written lane by lane, because that is the only form
// in which fma is explicit; the compiler joins the lanes.
template <class T>
struct PackOf {
  typedef T Type __attribute__((vector_size(kPackBytes)));
};
template <class T>
using Pack = typename PackOf<T>::Type;
template <class T>
inline constexpr int kPackLanes = kPackBytes / static_cast<int>(sizeof(T));

template <class T>
FSDPTRAIN_HOST_DEVICE Pack<T> load_pack(const T* from) {
  Pack<T> pack;
  __builtin_memcpy(&pack, from, sizeof pack);
  return pack;
}
template <class T>
FSDPTRAIN_HOST_DEVICE void store_pack(T* to, const Pack<T>& pack) {
  __builtin_memcpy(to, &pack, sizeof pack);
}
// sum + a * b
template <class T>
FSDPTRAIN_HOST_DEVICE Pack<T> add_product(const Pack<T>& sum, T a, const Pack<T>& b) {
  Pack<T> result;
#pragma GCC unroll 16
  for (int lane = 0; lane < kPackLanes<T>; ++lane) {
    result[lane] = math::fma(a, b[lane], sum[lane]);
  }
  return result;
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
