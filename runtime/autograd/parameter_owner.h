#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace fsdptrain::autograd {

class ParameterOwner;

// A way to an owner that may be gone: graphs and tensors outlive owners.
class OwnerRef {
 public:
  // To no owner: what tensors have that nobody keeps.
  OwnerRef() = default;

  // Whether there is an owner, or was one.
  explicit operator bool() const { return life_ != nullptr; }
  // Null where there is none, or none any more.
  ParameterOwner* get() const { return life_ == nullptr ? nullptr : *life_; }
  // The owner, which there was; AutogradError naming the parameter if it is gone.
  ParameterOwner& of(std::string_view parameter) const {
    check<AutogradError>(get() != nullptr,
                         "the owner of parameter {} is gone: it must live until the last backward "
                         "of a graph that was recorded with its parameters",
                         parameter);
    return *get();
  }

  friend bool operator==(const OwnerRef&, const OwnerRef&) = default;

 private:
  friend class ParameterOwner;

  std::shared_ptr<ParameterOwner*> life_;
};

// One run of a unit's forward, or none (no owner). Edges to a parameter carry the invocation
// they were recorded in, so that the engine can tell when each has received all its gradients.
struct Invocation {
  OwnerRef owner;
  std::uint64_t id = 0;

  friend bool operator==(const Invocation&, const Invocation&) = default;
};

// Whoever keeps parameters in flat buffers: autograd and modules know it by this interface alone.
// An owner outlives its parameters and the backward of every graph that was recorded with them;
// a backward that comes later is an AutogradError. All calls come from the thread of the rank
// context.
class ParameterOwner {
 public:
  ParameterOwner() { life_.life_ = std::make_shared<ParameterOwner*>(this); }
  ParameterOwner(const ParameterOwner&) = delete;
  ParameterOwner& operator=(const ParameterOwner&) = delete;
  virtual ~ParameterOwner() { *life_.life_ = nullptr; }

  // Parameters have their bytes, in compute dtype, from here ...
  virtual void unshard() = 0;
  // ... to here.
  virtual void reshard() = 0;
  // A gradient is about to be written to a slot of this owner whose buffer is released: the slots
  // have their bytes from here to post_backward().
  virtual void prepare_gradients() {}
  // The last gradient of this invocation's edges has been delivered: called once per invocation
  // and backward pass, and not at all if the pass reaches none of its edges.
  virtual void post_backward(std::uint64_t invocation) = 0;

  // For the metadata of the parameters.
  const OwnerRef& reference() const { return life_; }

  // Changes whenever the values of the parameters do (optimizer step, load, user write): a
  // backward that finds another epoch than its forward fails.
  std::uint64_t epoch() const { return epoch_; }
  void bump_epoch() { ++epoch_; }

  // The innermost run of the unit's forward under way; id 0 outside of any. A replay (recompute.h)
  // is no run: it records no edges.
  Invocation current_invocation() const { return {life_, open_.empty() ? 0 : open_.back()}; }
  void begin_invocation();
  void end_invocation();

 private:
  OwnerRef life_;
  std::uint64_t epoch_ = 0;
  std::uint64_t last_invocation_ = 0;
  std::vector<std::uint64_t> open_;
};

}  // namespace fsdptrain::autograd
