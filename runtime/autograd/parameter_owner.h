#pragma once

#include <cstdint>
#include <vector>

namespace fsdptrain::autograd {

class ParameterOwner;

// One run of a unit's forward, or none (owner null). Edges to a parameter carry the invocation
// they were recorded in, so that the engine can tell when each has received all its gradients.
struct Invocation {
  ParameterOwner* owner = nullptr;
  std::uint64_t id = 0;

  friend bool operator==(const Invocation&, const Invocation&) = default;
};

// Whoever keeps parameters in flat buffers: autograd and modules know it by this interface alone.
// An owner outlives its parameters and every graph that was recorded with them. All calls come
// from the thread of the rank context.
class ParameterOwner {
 public:
  ParameterOwner() = default;
  ParameterOwner(const ParameterOwner&) = delete;
  ParameterOwner& operator=(const ParameterOwner&) = delete;
  virtual ~ParameterOwner() = default;

  // Parameters have their bytes, in compute dtype, from here ...
  virtual void unshard() = 0;
  // ... to here.
  virtual void reshard() = 0;
  // The last gradient of this invocation's edges has been delivered: called once per invocation
  // and backward pass, and not at all if the pass reaches none of its edges.
  virtual void post_backward(std::uint64_t invocation) = 0;

  // Changes whenever the values of the parameters do (optimizer step, load, user write): a
  // backward that finds another epoch than its forward fails.
  std::uint64_t epoch() const { return epoch_; }
  void bump_epoch() { ++epoch_; }

  // The innermost run of the unit's forward under way; id 0 outside of any.
  Invocation current_invocation() { return {this, open_.empty() ? 0 : open_.back()}; }
  void begin_invocation() { open_.push_back(++last_invocation_); }
  void end_invocation() { open_.pop_back(); }

 private:
  std::uint64_t epoch_ = 0;
  std::uint64_t last_invocation_ = 0;
  std::vector<std::uint64_t> open_;
};

}  // namespace fsdptrain::autograd
