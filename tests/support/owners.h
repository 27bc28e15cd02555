#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/meta.h"
#include "runtime/autograd/parameter_owner.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/tensor.h"

namespace fsdptrain::testing {

// An owner of a few parameters, one behind the other in one buffer, with gradient slots that
// start as NaN, so that an add where a write is due shows.
class TestOwner : public autograd::ParameterOwner {
 public:
  Tensor add(std::string name, const Shape& shape, const std::vector<double>& values) {
    Tensor parameter = values_.alias(shape, Strides::contiguous(shape), end_);
    unshard();
    for (std::size_t i = 0; i < values.size(); ++i) {
      parameter.set_item(static_cast<std::int64_t>(i), values[i]);
    }
    reshard();
    parameter.set_requires_grad(true);
    auto slot = slots_.emplace_back(std::make_shared<autograd::GradientSlot>());
    slot->buffer = gradients_.alias(shape, Strides::contiguous(shape), end_);
    autograd::Meta& meta = *parameter.autograd_meta();
    meta.name = std::move(name);
    meta.owner = reference();
    meta.slot = autograd::SlotView{slot->buffer, {slot}, true};
    end_ += parameter.numel();
    return parameter;
  }

  // body() as one run of the unit's forward: parameters have their bytes in it, and from the
  // moment that the gradient of its result is known until its last gradient is delivered.
  Tensor run(const std::function<Tensor()>& body) {
    unshard();
    if (autograd::replaying()) {
      autograd::queue_callback([this] { rest(); });
      return body();
    }
    if (current_context().autograd.pass == nullptr) {
      // A backward that failed finished nothing.
      in_backward_.clear();
    }
    begin_invocation();
    const std::uint64_t invocation = current_invocation().id;
    Tensor y;
    try {
      y = body();
    } catch (...) {
      leave();
      throw;
    }
    leave();
    if (y.requires_grad() && !y.is_leaf()) {
      y.autograd_meta()->pre_backward_hooks.emplace_back([this, invocation] {
        in_backward_.insert(invocation);
        unshard();
        autograd::queue_callback([this] { rest(); });
      });
    }
    return y;
  }

  // The elements of a parameter or a view of one.
  std::vector<double> read(const Tensor& parameter) {
    unshard();
    std::vector<double> values = parameter.to_vector();
    reshard();
    return values;
  }

  void zero_grad() {
    for (const auto& slot : slots_) {
      slot->written = false;
      slot->ahead = false;
    }
  }

  void post_backward(std::uint64_t invocation) override {
    finished.push_back(invocation);
    in_backward_.erase(invocation);
    if (in_backward_.empty()) {
      reshard();
    }
  }

  // The invocations that post_backward was called for, in order.
  std::vector<std::uint64_t> finished;

 protected:
  TestOwner(Tensor values, std::int64_t capacity, DType reduce_dtype)
      : values_(std::move(values)),
        gradients_(Tensor::full({capacity}, std::nan(""), reduce_dtype)) {}

  Tensor values_;

 private:
  void leave() {
    end_invocation();
    if (current_invocation().id == 0) {
      reshard();
    }
  }
  void rest() {
    in_backward_.clear();
    reshard();
  }

  Tensor gradients_;
  std::vector<std::shared_ptr<autograd::GradientSlot>> slots_;
  std::int64_t end_ = 0;
  // Invocations whose backward has begun and is not finished.
  std::set<std::uint64_t> in_backward_;
};

// Leaves its parameters where they are.
class TinyOwner final : public TestOwner {
 public:
  explicit TinyOwner(std::int64_t capacity, DType dtype = DType::Float64,
                     DType reduce_dtype = DType::Float64)
      : TestOwner(Tensor::zeros({capacity}, dtype), capacity, reduce_dtype) {}

  void unshard() override {}
  void reshard() override {}
};

// Takes the bytes away at the first chance and brings them back at another address: whoever kept
// an address reads NaN, whoever comes at the wrong time gets a StorageError.
class RestlessOwner final : public TestOwner {
 public:
  explicit RestlessOwner(std::int64_t capacity, DType dtype = DType::Float64,
                         DType reduce_dtype = DType::Float64)
      : TestOwner(unplaced(capacity, dtype), capacity, reduce_dtype),
        at_rest_(Tensor::zeros({capacity}, dtype)),
        rooms_{Tensor::zeros({capacity}, dtype), Tensor::zeros({capacity}, dtype)} {}
  RestlessOwner(const RestlessOwner&) = delete;
  RestlessOwner& operator=(const RestlessOwner&) = delete;
  // Tensors that outlive this find no bytes instead of freed ones.
  ~RestlessOwner() override { values_.storage()->release(); }

  void unshard() override {
    if (!values_.storage()->released()) {
      return;
    }
    room_ = 1 - room_;
    const auto to = rooms_[room_].mutable_bytes();
    std::memcpy(to.data(), at_rest_.bytes().data(), to.size());
    values_.storage()->restore(to.data());
  }

  void reshard() override {
    if (values_.storage()->released()) {
      return;
    }
    const auto from = rooms_[room_].mutable_bytes();
    std::memcpy(at_rest_.mutable_bytes().data(), from.data(), from.size());
    std::memset(from.data(), 0xFF, from.size());
    values_.storage()->release();
  }

 private:
  static Tensor unplaced(std::int64_t capacity, DType dtype) {
    const auto nbytes = static_cast<std::size_t>(capacity) * size_of(dtype);
    return Tensor::over(Storage::placed(Device::cpu(), nbytes), dtype, {capacity}, {1}, 0);
  }

  Tensor at_rest_;
  std::array<Tensor, 2> rooms_;
  std::size_t room_ = 0;
};

}  // namespace fsdptrain::testing
