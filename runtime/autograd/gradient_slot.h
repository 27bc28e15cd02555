#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/autograd/parameter_owner.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::autograd {

// Where the gradient of one parameter is gathered: a window on its owner's buffer, in the reduce
// dtype. The first write replaces what is there, later ones add, until the owner clears `written`.
struct GradientSlot {
  Tensor buffer;
  bool written = false;
  // The number of the forward that wrote a gradient whose backward is still to come; 0: none.
  std::uint64_t ahead = 0;
  // Whom a write asks for the buffer while it is released; none: it never is.
  OwnerRef owner = {};
};

// What a backward closure writes a gradient to.
struct GradientTarget {
  Tensor destination;
  // Add to what is there; else every element is to be written (beta = 0).
  bool accumulate = false;
};

// Puts a gradient of the destination's shape, in any floating dtype, where it belongs.
void write_gradient(const GradientTarget& target, const Tensor& gradient);

// A parameter's slot, or the same view of it as the tensor it belongs to is of the parameter.
struct SlotView {
  Tensor destination;
  // More than one where the view spans adjacent parameters.
  std::vector<std::shared_ptr<GradientSlot>> slots;
  // The view reaches every element of its slots.
  bool whole = true;

  // Opens the destination for one write; all slots count as written from here on. StorageError,
  // and nothing is opened, while it is released and no owner brings it back.
  GradientTarget open() const;
  // After a write to an open `target` that failed: what was to be replaced is unwritten again.
  void abandon(const GradientTarget& target) const;

  std::uint64_t ahead() const;
  void set_ahead(std::uint64_t forward) const;
};

}  // namespace fsdptrain::autograd
