#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/autograd/meta.h"
#include "runtime/autograd/parameter_owner.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::testing {

// An owner of a few parameters, one behind the other in one buffer, with gradient slots that
// start as NaN, so that an add where a write is due shows.
class TinyOwner final : public autograd::ParameterOwner {
 public:
  explicit TinyOwner(std::int64_t capacity, DType dtype = DType::Float64,
                     DType reduce_dtype = DType::Float64)
      : values_(Tensor::zeros({capacity}, dtype)),
        gradients_(Tensor::full({capacity}, std::nan(""), reduce_dtype)) {}

  Tensor add(std::string name, const Shape& shape, const std::vector<double>& values) {
    Tensor parameter = values_.alias(shape, Strides::contiguous(shape), end_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      parameter.set_item(static_cast<std::int64_t>(i), values[i]);
    }
    parameter.set_requires_grad(true);
    auto slot = std::make_shared<autograd::GradientSlot>();
    slot->buffer = gradients_.alias(shape, Strides::contiguous(shape), end_);
    autograd::Meta& meta = *parameter.autograd_meta();
    meta.name = std::move(name);
    meta.owner = this;
    meta.slot = autograd::SlotView{slot->buffer, {slot}, true};
    end_ += parameter.numel();
    return parameter;
  }

  void unshard() override {}
  void reshard() override {}
  void post_backward(std::uint64_t invocation) override { finished.push_back(invocation); }

  // The invocations that post_backward was called for, in order.
  std::vector<std::uint64_t> finished;

 private:
  Tensor values_;
  Tensor gradients_;
  std::int64_t end_ = 0;
};

}  // namespace fsdptrain::testing
