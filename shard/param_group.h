#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
#include "runtime/nn/parameter.h"
#include "shard/flat_buffer.h"
#include "shard/group_behavior.h"
#include "shard/group_state.h"
#include "shard/model_context.h"
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
    // Ranks that have the same parameters as this one, whose gradients are added as well; null:
    // none. Of several the other axis has one rank. They outlive this.
    comm::ProcessGroup* replicas = nullptr;
    // What the sum of all ranks' gradients is divided by; empty: their number.
    std::optional<double> gradient_divide_factor = std::nullopt;
    Accumulation accumulation = Accumulation::Sharded;
    std::uint64_t seed = 0;
    // Of every collective of this group: root and group.
    comm::Tag tag = {};
  };

  // What a group is made of: the forwards of `modules`, and parameters that have no owner yet,
  // under their whole names, those of a set in `adjacent` next to each other.
  struct Members {
    std::vector<nn::Module*> modules;
    std::vector<nn::Parameter> parameters;
    std::vector<std::vector<std::string>> adjacent;
  };

  // A list of modules is one unit, of which each runs once in an invocation: it is gathered for the
  // first of them that runs until the last one has. There may be no parameters. Gathered parameters
  // and whole gradients lie in `pool`, as those of the tag's group; `context` is shared with the
  // other groups of the model; both outlive this.
  // ConfigError for dtypes that do not fit, DTypeError for policies, and what plan_layout()
  // refuses.
  ParamGroup(Members members, comm::ProcessGroup& ranks, SlotPool& pool, ModelContext& context,
             const Options& options);
  ParamGroup(const ParamGroup&) = delete;
  ParamGroup& operator=(const ParamGroup&) = delete;
  ~ParamGroup() override;

  // For an optimizer: this rank's part of what is trained. Bump the epoch after changing values.
  std::vector<nn::FlatChunk>& chunks() { return chunks_; }
  // Forgets all gradients, those whose backward failed or is still to come among them.
  void zero_grad();
  // Tells every chunk's segments which parameters have a gradient since zero_grad(): on this rank,
  // and where note_used() said so.
  void mark_active_segments();
  // For each parameter that is trained 1 if it has a gradient on this rank, else 0; all ranks have
  // the same order.
  void append_used(std::vector<double>& used) const;
  // The same of all ranks: those above 0 have a gradient. What is behind them is returned.
  std::span<const double> note_used(std::span<const double> used);
  // After a forward or backward that failed: forgets what it left, so that a step can begin once
  // the context was reset. All gradients are forgotten. If the world has failed it throws that
  // error half-way; then the group is to be destroyed, which gives back all that it holds.
  void reset_iter_state();

  // Whether nothing is on its way to the chunks' gradients, of backwards that are not the last.
  bool gradients_are_final() const;
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

  GroupBehavior& behavior() { return behavior_; }
  ExplicitPrefetch& prefetch() { return prefetch_; }
  // What the sum of gradients is divided by, from the next reduction on; empty: the number of
  // ranks. AutogradError while there are gradients that are not reduced.
  void set_gradient_divide_factor(std::optional<double> factor);

  // By the context. Ends an invocation of which not all modules have run, and gives back what no
  // forward has waited for.
  void end_partial_forward();
  void drop_ahead();
  // What was kept for a backward that has not come.
  void give_back_kept();
  // After a forward that failed, of this group or of another.
  void abandon_forward();
  // What has been reduced is added to the chunks' gradients.
  void finish_reductions();
  // After the last of several backwards: what has come together in the chunks' gradients is reduced
  // over replicas, in place, and then they are final.
  void begin_replica_sums();
  void finish_gradients();
  // At the end of a backward: what it has not reduced is, and the group is at rest.
  void finish_backward();

 private:
  enum class State : std::uint8_t { Sharded, Gathering, Unsharded };

  void make_buffers();
  void attach();
  void add_hooks(nn::Module& module);
  void pre_forward(nn::Module::Tensors& inputs);
  void post_forward(const nn::Module& module, const nn::Module::Tensors& outputs);
  void forward_failed();
  void begin_run();
  void end_run();
  void watch_inputs(const nn::Module::Tensors& inputs, std::uint64_t invocation);
  void input_is_reached(std::uint64_t invocation);
  void pre_backward(std::uint64_t invocation);
  // Gives parameters back if no backward of an invocation needs them any more.
  void leave_backward(std::uint64_t invocation);
  bool has_frozen() const { return chunks_.size() < buffers_.size(); }
  // Other groups run within the forward of this one.
  bool surrounds_others() const;
  std::string name() const;

  // One rank: parameters are the chunk; gradients are the chunk's.
  bool aliases_parameters(const FlatBuffer& buffer) const;
  bool aliases_gradients(const FlatBuffer& buffer) const;
  bool has_open_gradients(const FlatBuffer& buffer) const;
  void place_gradients(std::size_t index);
  WholeBuffer take(std::size_t index, SlotKind kind);
  void give_back(WholeBuffer& whole);
  WholeBuffer gather(std::size_t index);
  void wait_for_gathering();
  void reduce_all(std::uint64_t invocation);
  void reduce(std::size_t index, std::uint64_t invocation);
  // What is to be reduced of a buffer, without gaps that are not zero; a place in it.
  Reducing& take_for_reduction(std::size_t index);
  comm::Reduction reduction() const;
  comm::Tag tag(comm::Direction direction, std::uint64_t invocation) const;

  std::vector<nn::Module*> modules_;
  comm::ProcessGroup& ranks_;
  SlotPool& pool_;
  ModelContext& context_;
  Options options_;
  GroupBehavior behavior_;
  ExplicitPrefetch prefetch_;
  std::vector<nn::Parameter> parameters_;
  std::vector<std::vector<std::string>> adjacent_;
  std::vector<FlatBuffer> buffers_;
  std::vector<nn::FlatChunk> chunks_;

  State state_ = State::Sharded;
  // The epoch of what was gathered.
  std::uint64_t gathered_epoch_ = 0;
  // Whole parameters while they are not sharded, by buffer.
  std::vector<WholeBuffer> gathered_;
  std::vector<comm::Work> gathering_;
  // Whole gradients while they are written, by buffer; undefined while they are not.
  std::vector<WholeBuffer> gradients_;
  std::vector<Reducing> reducing_;
  // In the backward under way.
  std::size_t num_reductions_ = 0;
  // Of a list: an invocation is under way, and which modules have run in it.
  bool run_is_open_ = false;
  std::set<const nn::Module*> have_run_;
  // Lives on in the graph of the invocation under way.
  std::shared_ptr<const void> graph_;
  // By invocation, while its graph lives.
  std::map<std::uint64_t, std::shared_ptr<const WatchedInputs>> inputs_;
  // Not resharded after the forward, because the backward begins here.
  bool kept_ = false;
  // There are whole gradients of backwards without sync.
  bool unsynced_ = false;
  // By invocation.
  std::map<std::uint64_t, OpenBackward> open_backwards_;
  std::uint64_t num_gathers_ = 0;
};

}  // namespace fsdptrain::shard
