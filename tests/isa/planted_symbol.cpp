// A mistake planted for tools/lint/check_isa_symbols.py: code that every variant would define
// under the same name.
#include "kernels/cpu/parallel.h"

namespace fsdptrain::kernels {

template <class T>
T planted_in_no_variant(T x) {
  return x + x;
}
template float planted_in_no_variant(float);

inline namespace FSDPTRAIN_VARIANT {

float named_by_its_variant(float x) {
  return x + x;
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
