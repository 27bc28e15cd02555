#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "comm/tag.h"
#include "runtime/autograd/parameter_owner.h"
#include "runtime/nn/flat_chunk.h"
#include "runtime/nn/module.h"
#include "runtime/nn/parameter_rules.h"
#include "shard/flat_buffer.h"
#include "shard/policy.h"
#include "shard/slot_pool.h"

namespace fsdptrain::shard {

// The owner of a module's parameters that are sharded over the ranks of a process group. Each rank
// keeps a chunk of every flat buffer. The module's forward and backward gather the whole of it in
// place; gradients are written where they are reduced from, and what a rank gets of their sum is
// added to its chunk's gradients. In between a parameter has no bytes, and reading it is a
// StorageError that names it.
//
// All ranks of the process group make the same groups of the same modules and run them in the same
// order. The process group outlives this; this outlives the backward of the module's graphs, and
// the module outlives it. Destroyed, it leaves the module without parameters and hooks.
class ParamGroup final : public autograd::ParameterOwner {
 public:
  struct Options {
    // Of the parameters that are trained and kept: float32, or float64 for oracles.
    DType dtype = DType::Float32;
    MixedPrecisionPolicy policy = {};
    // What the sum of the ranks' gradients is divided by; empty: their number.
    std::optional<double> gradient_divide_factor = std::nullopt;
    std::uint64_t seed = 0;
    // In front of the names of the module's parameters: where it is in its model, with a dot
    // behind. Initial values, rules and errors go by the whole name.
    std::string path = {};
    std::vector<nn::ParameterRule> rules = {};
    // Of every collective of this group: root and group.
    comm::Tag tag = {};
    // Where gathered parameters and whole gradients lie, as those of this group's tag; it outlives
    // the group. None: they are allocated each time.
    SlotPool* pool = nullptr;
  };

  // Takes the parameters of `module` that have no owner yet: groups of its children come first.
  // AutogradError if there is none; ConfigError for rules and dtypes that do not fit, DTypeError
  // for policies, and what plan_layout() refuses.
  ParamGroup(nn::Module& module, comm::ProcessGroup& ranks, const Options& options);
  ParamGroup(const ParamGroup&) = delete;
  ParamGroup& operator=(const ParamGroup&) = delete;
  ~ParamGroup() override;

  // For an optimizer: this rank's part of what is trained. Bump the epoch after changing values.
  std::vector<nn::FlatChunk>& chunks() { return chunks_; }
  // Forgets all gradients, those whose backward failed or is still to come among them.
  void zero_grad();
  // Tells every chunk's segments which parameters have a gradient since zero_grad().
  void mark_active_segments();
  // After a forward or backward that failed: forgets what it left, so that a step can begin. All
  // gradients are forgotten.
  void reset_iter_state();

  // Whether parameters have their bytes.
  bool unsharded() const { return state_ == State::Unsharded; }
  std::span<const FlatBuffer> buffers() const { return buffers_; }
  // Under their whole names; layouts number them like this.
  std::span<const nn::Parameter> parameters() const { return parameters_; }

  // Collective: begins to gather, for an unshard() that is to come; nothing where that was done
  // already. The current values count: after an update it begins again.
  void issue_unshard();
  // Waits for what was issued, or issues it and waits. The module's hooks call it.
  void unshard() override;
  // Also what was issued and not waited for.
  void reshard() override;
  void prepare_gradients() override;
  void post_backward(std::uint64_t invocation) override;

 private:
  enum class State : std::uint8_t { Sharded, Gathering, Unsharded };

  // A whole buffer, of parameters or gradients.
  struct Whole {
    Tensor values;
    // In the pool; none where it is not.
    std::optional<SlotUse> use;
  };
  // Gradients under way.
  struct Reducing {
    std::size_t buffer = 0;
    Whole whole;
    // None where there is one rank.
    std::optional<comm::Work> work;
  };

  void take_parameters();
  // Those of the sets of adjacent parameters that are this group's.
  std::vector<std::vector<std::string>> adjacent() const;
  void make_buffers();
  void attach();
  void pre_forward();
  void post_forward(const nn::Module::Tensors& outputs);
  void forward_failed();
  void pre_backward(std::uint64_t invocation);
  // The backward under way needs the group from here on; at its end the group is at rest.
  void enter_backward();
  void finish_backward();

  // One rank: parameters are the chunk; gradients are the chunk's.
  bool aliases_parameters(const FlatBuffer& buffer) const;
  bool aliases_gradients(const FlatBuffer& buffer) const;
  Whole take(std::size_t index, SlotKind kind);
  void give_back(Whole& whole);
  Whole gather(std::size_t index);
  void wait_for_gathering();
  void reduce(std::size_t index, std::uint64_t invocation);
  void finish_reductions();
  comm::Reduction reduction() const;
  comm::Tag tag(comm::Direction direction, std::uint64_t invocation) const;

  nn::Module& module_;
  comm::ProcessGroup& ranks_;
  Options options_;
  std::vector<nn::Parameter> parameters_;
  std::vector<FlatBuffer> buffers_;
  std::vector<nn::FlatChunk> chunks_;

  State state_ = State::Sharded;
  // The epoch of what was gathered.
  std::uint64_t gathered_epoch_ = 0;
  // Whole parameters while they are not sharded, by buffer.
  std::vector<Whole> gathered_;
  std::vector<comm::Work> gathering_;
  // Whole gradients while they are written, by buffer; undefined while they are not.
  std::vector<Whole> gradients_;
  std::vector<Reducing> reducing_;
  // A backward has reached the group and is not finished.
  bool in_backward_ = false;
  // Invocations whose backward has begun and not ended.
  std::set<std::uint64_t> open_backwards_;
  std::uint64_t num_gathers_ = 0;
};

}  // namespace fsdptrain::shard
