#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/autograd/parameter_owner.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::autograd {

class Cell;

// A tensor that a backward closure will read: the only kind of tensor it may capture. It holds
// the storage without history, so that no closure keeps its own graph alive, and it notices
// changes: an in-place write, or, for a parameter, another epoch of its owner. Within a recomputed
// region (recompute.h) it holds nothing, and the first get() brings the tensor back; leaves and
// parameters, which somebody keeps anyway, it holds there too.
class SavedTensor {
 public:
  SavedTensor() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a capture list converts tensors to this.
  SavedTensor(const Tensor& tensor);
  // One that holds the storage whatever region it is made in.
  static SavedTensor holding(const Tensor& tensor);

  bool defined() const { return tensor_.defined() || cell_ != nullptr; }
  // The tensor, unchanged since it was saved; AutogradError naming it if it was not.
  const Tensor& get() const;

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
  OwnerRef owner_;
  std::uint64_t epoch_ = 0;
  std::string name_;
  // Where a region puts the tensor; null for one that is held.
  std::shared_ptr<Cell> cell_;
};

}  // namespace fsdptrain::autograd
