#pragma once

#include <cstdint>
#include <string>

#include "runtime/autograd/parameter_owner.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::autograd {

// A tensor that a backward closure will read: the only kind of tensor it may capture. It holds
// the storage without history, so that no closure keeps its own graph alive, and it notices
// changes: an in-place write, or, for a parameter, another epoch of its owner.
class SavedTensor {
 public:
  SavedTensor() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a capture list converts tensors to this.
  SavedTensor(const Tensor& tensor);

  bool defined() const { return tensor_.defined(); }
  // The tensor, unchanged since it was saved; AutogradError naming it if it was not.
  const Tensor& get() const;

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
  ParameterOwner* owner_ = nullptr;
  std::uint64_t epoch_ = 0;
  std::string name_;
};

}  // namespace fsdptrain::autograd
