#pragma once

#include "kernels/functors/variant.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Mean and sum of squared deviations of some values, gathered piece by piece (Chan, Golub and
// LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
// {} is no value at all.
template <class T>
struct Welford {
  T count = T(0);
  T mean = T(0);
  T m2 = T(0);
};

template <class T>
FSDPTRAIN_HOST_DEVICE Welford<T> combine(Welford<T> a, Welford<T> b) {
  const T count = a.count + b.count;
  const T delta = b.mean - a.mean;
  const T share = b.count / count;
  return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
