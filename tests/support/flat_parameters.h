#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/autograd/gradient_slot.h"
#include "runtime/autograd/parameter_owner.h"
#include "runtime/nn/flat_chunk.h"
#include "runtime/nn/module.h"
#include "runtime/nn/parameter_rules.h"

namespace fsdptrain::testing {

// The oracle that sharded models are compared with, and an owner for tests of what knows of no
// ranks: it keeps the parameters of a module that are not sharded. In the product shard::ParamGroup
// keeps them, on one rank too; this shares no code with shard/.
//
// All that is trained is packed into one flat buffer, of which every parameter is a view, with a
// gradient slot in a second one; what is frozen lies in buffers of its own. Under a compute dtype
// other than that which a parameter is kept in, the module sees a copy, cast once per epoch.
//
// Outlives the backward of the module's graphs; the module outlives it, and is of no use after it.
class FlatParameters final : public autograd::ParameterOwner {
 public:
  struct Options {
    Device device = Device::cpu();
    // That parameters are kept in, but for frozen ones of which a rule says otherwise.
    DType dtype = DType::Float32;
    // What forward and backward see; empty: `dtype`.
    std::optional<DType> compute_dtype = std::nullopt;
    std::uint64_t seed = 0;
    std::vector<nn::ParameterRule> rules = {};
  };

  // Takes all parameters of `module`; AutogradError if one has an owner already, ConfigError for
  // rules that match nothing. Members of an adjacent set are trained or frozen together.
  FlatParameters(nn::Module& module, const Options& options);
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;
  ~FlatParameters() override;

  // For an optimizer: one chunk, or none if nothing is trained. Bump the epoch after changing
  // values.
  std::vector<nn::FlatChunk>& chunks() { return chunks_; }

  // One parameter by name, in the dtype that it is kept in: a window on the flat buffer.
  struct Named {
    std::string name;
    Tensor values;
    // The window on the gradient buffer; undefined for frozen parameters.
    Tensor gradient;
  };
  // What is trained comes first.
  const std::vector<Named>& named() const { return named_; }
  // Error if there is none.
  const Named& find(const std::string& name) const;
  // Elements of all parameters, frozen ones too.
  std::int64_t num_parameters() const;

  // Forgets all gradients: the next backward overwrites them.
  void zero_grad();
  // Tells the chunk's segments which gradients were written since zero_grad().
  void mark_active_segments();

  void unshard() override;
  void reshard() override {}
  void post_backward(std::uint64_t /*invocation*/) override {}

 private:
  // Parameters that lie without gaps.
  using Set = std::vector<nn::Parameter>;

  // One flat buffer and what the module sees of it, the same where dtypes agree.
  struct Buffer {
    Tensor parameters;
    Tensor compute;
  };

  static std::vector<Set> in_sets(const std::vector<nn::Parameter>& parameters,
                                  const std::vector<std::vector<std::string>>& adjacent);
  // Sets of one kind, trained or frozen, become one buffer.
  void pack(const std::vector<Set>& sets);
  void place(const nn::Parameter& parameter, const Buffer& buffer, const nn::Segment& segment);
  void add_hooks();

  nn::Module& module_;
  Options options_;
  std::vector<Buffer> buffers_;
  // The epoch that the copies were cast in.
  std::optional<std::uint64_t> cast_in_;
  std::vector<nn::FlatChunk> chunks_;
  // In the order of the chunk's segments.
  std::vector<std::shared_ptr<autograd::GradientSlot>> slots_;
  std::vector<Named> named_;
};

}  // namespace fsdptrain::testing
