#pragma once

#include <cstdint>

#include "kernels/functors/variant.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Combines values, one after the other, in the order of the binary tree over their index that
// splits at the largest power of two below their number: five are ((0+1)+(2+3))+4, seven are
// ((0+1)+(2+3))+((4+5)+6). It holds what a binary number of the values so far holds: one value for
// every bit that is set, the sum of as many values as the bit stands for.
//
// merge(left, right) combines two neighbours; what it returns may be either of them. Value is
// default-constructible and movable. REQUIRES: fewer than 2^levels values.
template <class Value, int levels>
class BinaryCounter {
 public:
  // Values that it holds, at most `levels`: leftmost, and that of most, first.
  FSDPTRAIN_HOST_DEVICE int size() const { return size_; }

  // The value to the right of all before it.
  template <class Merge>
  FSDPTRAIN_HOST_DEVICE void push(Value value, const Merge& merge) {
    for (std::uint64_t carry = count_; (carry & 1u) != 0; carry >>= 1) {
      --size_;
      value = merge(static_cast<Value&&>(values_[size_]), static_cast<Value&&>(value));
    }
    values_[size_] = static_cast<Value&&>(value);
    ++size_;
    ++count_;
  }

  // All of the values in one; the counter is empty then. REQUIRES: at least one value.
  template <class Merge>
  FSDPTRAIN_HOST_DEVICE Value finish(const Merge& merge) {
    Value value = static_cast<Value&&>(values_[size_ - 1]);
    for (--size_; size_ > 0; --size_) {
      value = merge(static_cast<Value&&>(values_[size_ - 1]), static_cast<Value&&>(value));
    }
    count_ = 0;
    return value;
  }

 private:
  Value values_[levels] = {};
  int size_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
