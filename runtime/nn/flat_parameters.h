#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/autograd/gradient_slot.h"
#include "runtime/autograd/parameter_owner.h"
#include "runtime/nn/flat_chunk.h"
#include "runtime/nn/module.h"
#include "runtime/nn/parameter_rules.h"

namespace fsdptrain::nn {

// The owner of a module's parameters on one device: packs them into one flat buffer per (dtype,
// trainable), makes every parameter a view of it, gives each trainable one a gradient slot in a
// second flat buffer, and initialises what the module was built without. Under a compute dtype
// other than the parameters' own, the module sees a compute copy: recast once per epoch if it is
// trained, and after a write if it is not.
//
// Outlives the backward of the module's graphs; the module outlives it. Destroyed, it leaves the
// module without parameters and hooks, as it was built.
class FlatParameters final : public autograd::ParameterOwner {
 public:
  struct Options {
    Device device = Device::cpu();
    // Of the parameters the optimizer keeps: float32, or float64 for oracles.
    DType dtype = DType::Float32;
    // What forward and backward see; empty: `dtype`.
    std::optional<DType> compute_dtype = std::nullopt;
    std::uint64_t seed = 0;
    std::vector<ParameterRule> rules = {};
  };

  // Takes all parameters of `module`; AutogradError if one has an owner already, ConfigError for
  // rules that do not fit the parameters or each other.
  FlatParameters(Module& module, const Options& options);
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;
  ~FlatParameters() override;

  // For an optimizer: flat parameters with gradients and their segments. Bump the epoch after
  // changing values.
  std::vector<FlatChunk>& chunks() { return chunks_; }

  // One parameter by name, in the dtype that it is kept in, for reading and for loading: a window
  // on the flat buffer.
  struct Named {
    std::string name;
    Tensor values;
    // The window on the gradient buffer; undefined for frozen parameters.
    Tensor gradient;
  };
  const std::vector<Named>& named() const { return named_; }
  const Named& find(const std::string& name) const;
  // Elements of all parameters, frozen ones too.
  std::int64_t num_parameters() const;

  // Forgets all gradients: the next backward overwrites them.
  void zero_grad();
  // Tells every chunk's segments which gradients were written since zero_grad().
  void mark_active_segments();

  void unshard() override;
  void reshard() override {}
  void post_backward(std::uint64_t invocation) override;

 private:
  // What the parameters of one buffer have in common.
  struct Group {
    DType dtype = DType::Float32;
    bool trainable = true;

    friend bool operator==(const Group&, const Group&) = default;
  };

  // One flat buffer and the copy of it that the module sees, the same where dtypes agree.
  struct Buffer {
    Tensor parameters;
    Tensor compute;
    bool trainable = true;
    // What the copy was cast from: an epoch, or the version of frozen parameters.
    std::optional<std::uint64_t> cast_from = std::nullopt;
  };

  // A parameter's place: filled in by pack(), so that attach() cannot fail halfway.
  struct Placed {
    Tensor* parameter = nullptr;
    Tensor compute;
    // Null for frozen parameters.
    std::shared_ptr<autograd::GradientSlot> slot;
  };

  using Sets = std::vector<std::vector<const Parameter*>>;

  Group group_of(const Parameter& parameter) const;
  // All parameters, each adjacent set moved together to the place of its first member.
  Sets in_sets(const std::vector<Parameter>& parameters,
               const std::vector<std::vector<std::string>>& adjacent) const;
  // Packs and initialises the sets of one group.
  void pack(const Sets& sets, const Group& group);
  void place(const Parameter& parameter, const Buffer& buffer, const Segment& segment,
             const FlatChunk* chunk);
  // Makes the module's parameters the views that were placed.
  void attach();

  Module& module_;
  Options options_;
  DType compute_dtype_;
  std::vector<Buffer> buffers_;
  std::vector<FlatChunk> chunks_;
  // Slots of the trainable parameters, chunk by chunk in the order of the segments.
  std::vector<std::shared_ptr<autograd::GradientSlot>> slots_;
  std::vector<Named> named_;
  // In the order of named_.
  std::vector<Placed> placed_;
};

}  // namespace fsdptrain::nn
