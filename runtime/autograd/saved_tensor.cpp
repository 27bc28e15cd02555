#include "runtime/autograd/saved_tensor.h"

#include "runtime/autograd/meta.h"
#include "runtime/autograd/region.h"
#include "runtime/base/error.h"

namespace fsdptrain::autograd {

SavedTensor::SavedTensor(const Tensor& tensor) {
  if (!tensor.defined()) {
    return;
  }
  const auto& meta = tensor.autograd_meta();
  const bool kept_anyway = meta && meta->producer == nullptr;
  if (!kept_anyway) {
    cell_ = save_in_region(tensor);
  }
  if (!cell_) {
    *this = holding(tensor);
  }
}

SavedTensor SavedTensor::holding(const Tensor& tensor) {
  SavedTensor saved;
  saved.tensor_ = tensor.detach();
  saved.version_ = tensor.storage()->version();
  if (const auto& meta = tensor.autograd_meta()) {
    saved.owner_ = meta->owner;
    saved.name_ = meta->name;
    saved.epoch_ = meta->owner ? meta->owner.of(meta->name).epoch() : 0;
  }
  return saved;
}

const Tensor& SavedTensor::get() const {
  if (cell_) {
    return cell_->read();
  }
  if (owner_) {
    const std::uint64_t epoch = owner_.of(name_).epoch();
    check<AutogradError>(epoch == epoch_,
                         "parameter {} was changed between forward and backward (parameter epoch "
                         "{} then, {} now): run the backward before the optimizer step",
                         name_, epoch_, epoch);
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
