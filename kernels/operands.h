#pragma once

#include <initializer_list>
#include <span>

#include "kernels/range.h"
#include "runtime/base/view.h"

// What a kernel touches: said where it is launched, so that a launch which is carried out later
// can be ordered and checked. Both types refer to what the caller holds and live as long as the
// call they are made for.
namespace fsdptrain::kernels {

// All elements of a view, or, of a contiguous one, those of some ranges.
struct Operand {
  // NOLINTNEXTLINE(google-explicit-constructor): lists of operands are lists of views
  Operand(const View& whole) : view(&whole) {}
  // Nothing for null.
  // NOLINTNEXTLINE(google-explicit-constructor): as above
  Operand(const View* whole) : view(whole) {}
  Operand(const View& contiguous, std::span<const Range> parts)
      : view(&contiguous), is_whole(false), ranges(parts) {}
  // Nothing, unless `is_touched`.
  Operand(const View& whole, bool is_touched) : view(is_touched ? &whole : nullptr) {}

  const View* view;  // null for nothing
  bool is_whole = true;
  std::span<const Range> ranges = {};
};

// The views a kernel writes, and those whose elements from before the launch it reads: a view
// that it changes in place, or adds to, is in both.
struct Operands {
  std::initializer_list<Operand> writes;
  std::initializer_list<Operand> reads;
};

}  // namespace fsdptrain::kernels
