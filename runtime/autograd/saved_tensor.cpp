#include "runtime/autograd/saved_tensor.h"

#include "runtime/autograd/meta.h"
#include "runtime/base/error.h"

namespace fsdptrain::autograd {

SavedTensor::SavedTensor(const Tensor& tensor) : tensor_(tensor.detach()) {
  if (!tensor.defined()) {
    return;
  }
  version_ = tensor.storage()->version();
  if (const auto& meta = tensor.autograd_meta()) {
    owner_ = meta->owner;
    name_ = meta->name;
    epoch_ = owner_ != nullptr ? owner_->epoch() : 0;
  }
}

const Tensor& SavedTensor::get() const {
  if (owner_ != nullptr) {
    check<AutogradError>(owner_->epoch() == epoch_,
                         "parameter {} was changed between forward and backward (parameter epoch "
                         "{} then, {} now): run the backward before the optimizer step",
                         name_, epoch_, owner_->epoch());
  }
  if (tensor_.defined()) {
    check<AutogradError>(tensor_.storage()->version() == version_,
                         "{} of shape {} saved for backward was changed in place (version {} then, "
                         "{} now)",
                         name_.empty() ? "a tensor" : name_, tensor_.shape(), version_,
                         tensor_.storage()->version());
  }
  return tensor_;
}

}  // namespace fsdptrain::autograd
