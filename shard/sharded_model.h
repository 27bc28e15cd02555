#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "runtime/nn/flat_chunk.h"
#include "runtime/nn/module.h"
#include "runtime/nn/parameter_rules.h"
#include "shard/model_context.h"
#include "shard/sharded_unit.h"
#include "shard/slot_pool.h"

namespace fsdptrain::shard {

// A model whose parameters are sharded over the ranks of a process group: fully sharded data
// parallelism. One rank's part of it; all ranks do the same in the same order.
//
//   ShardedModel sharded(model, world.group(), {.seed = 1});
//   for (nn::Module* block : model.blocks()) sharded.fully_shard(*block);
//   sharded.fully_shard(model);
//   optim::AdamW optimizer(sharded.chunks(), {});
//
// The process group and the model outlive it; it outlives the backward of the model's graphs.
class ShardedModel {
 public:
  struct Options {
    // Of parameters that are trained and kept.
    DType dtype = DType::Float32;
    std::uint64_t seed = 0;
    // Ranks that have the same part of the model as this one, which they all update alike; null, or
    // one rank: none. Nothing looks for one that has other parameters. Then `ranks` is of one rank
    // (data parallelism without sharding): ConfigError. The group outlives the model.
    comm::ProcessGroup* replicas = nullptr;
    // Over backwards up to one that is the last (set_is_last_backward()). Exact sums are the same
    // bits on 1, 2, 4, ... ranks, where gradients are reduced in the dtype that parameters are kept
    // in and not divided; at most log2 of these backwards chunks more until the last one ends.
    Accumulation accumulation = Accumulation::Sharded;
    // By names below the model.
    std::vector<nn::ParameterRule> rules = {};
    // How many units are gathered ahead of the one that computes.
    int prefetch = 1;
    // Parameters, as members of their modules, that the caller places: they are neither sharded nor
    // are their gradients reduced.
    std::vector<const Tensor*> ignored = {};
    // Tells the models of a run apart.
    std::uint32_t root = 0;
  };

  ShardedModel(nn::Module& model, comm::ProcessGroup& ranks, const Options& options);
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;
  ~ShardedModel();

  // Makes one group of the parameters of the module, or of all modules of a list, that no earlier
  // call has taken: parts come before what they are part of, and the model comes last. Parameters
  // get their first values here, by their names below the model.
  // ConfigError: a module that is no part of the model, that was sharded before, whose parent was,
  // or that shares a parameter with a unit beside it. AutogradError once chunks() were asked for or
  // a forward has run.
  ShardedUnit& fully_shard(nn::Module& module, const ShardedUnit::Options& options = {});
  ShardedUnit& fully_shard(const std::vector<nn::Module*>& modules,
                           const ShardedUnit::Options& options = {});

  // For an optimizer: this rank's parts of all that is trained. Bump the epoch after an update.
  // Their segments say which parameters have a gradient on any rank, as of the last gradient_norm()
  // or mark_active_segments(), for whose reduction the host waits here.
  std::vector<nn::FlatChunk>& chunks();
  void bump_epoch();
  void zero_grad();
  // Finds out which parameters have a gradient since zero_grad(), by one small reduction;
  // gradient_norm() does it by its own.
  void mark_active_segments();
  // After a forward or backward that failed on all ranks: forgets what it left, and all gradients.
  // If the world has failed it throws that error half-way; then the model is to be destroyed, which
  // gives back all that it holds.
  void reset_iter_state();
  // Of several backwards that belong together only the last one waits for its reductions, and
  // gradients are final after it.
  void set_is_last_backward(bool is_last) { context_.set_is_last_backward(is_last); }
  // Of all units: ShardedUnit::set_requires_gradient_sync().
  void set_requires_gradient_sync(bool sync);

  // The p-norm of the gradients of all shards, p > 0 or infinite, by one reduction: float64, one
  // element, on the ranks' device, for which no host waits. Replicas have the same gradients, and
  // tell each other by a reduction of their own which. On a GPU p is 2: DeviceError. AutogradError
  // before the last backward.
  Tensor gradient_norm(double p = 2);
  struct Clipped {
    Tensor norm;
    // What brings the norm to at most the one asked for: Optimizer::step() multiplies by it.
    Tensor scale;
  };
  Clipped clip_grad_norm(double max_norm, double p = 2);

  const std::vector<std::unique_ptr<ShardedUnit>>& units() const { return units_; }
  // What stands in the group of a tag of its collectives: a unit, or what all have together.
  std::vector<std::string> tag_group_names() const;
  // Of the model, under the rules, in its order.
  const std::vector<nn::Parameter>& parameters() const { return parameters_; }
  // Elements of all that units have, frozen ones too.
  std::int64_t num_parameters() const;
  comm::ProcessGroup& ranks() { return ranks_; }
  const SlotPool& pool() const { return pool_; }

  // By GatheredScope.
  ModelContext& context() { return context_; }
  // By units.
  void enter_forward(ShardedUnit& unit);
  void leave_forward(const ShardedUnit& unit);
  void forward_failed(const ShardedUnit& unit);

 private:
  // The module's path below the model.
  std::string path_of(const nn::Module& module) const;
  std::string name_of(const std::vector<nn::Module*>& modules) const;
  void check_may_shard(const std::vector<nn::Module*>& modules, const std::string& name) const;
  void check_nesting(const nn::Module& module, const std::string& name) const;
  // AutogradError, naming a unit, where the last backward has not been.
  void check_gradients_are_final() const;
  // Room for a number, then 1 for each parameter that has a gradient on this rank and 0 for others.
  Tensor used() const;
  // Reduces it over the ranks and their replicas, for chunks().
  void reduce_used(Tensor used, comm::ReduceOp op);
  // Takes what was reduced, if anything was since the last time.
  void mark_used();
  ParamGroup::Members members_of(const std::vector<nn::Module*>& modules) const;
  // The first unit to run, which has all others in it.
  void decide_root(ShardedUnit& unit);
  void warn_of_single_unit() const;

  nn::Module& model_;
  comm::ProcessGroup& ranks_;
  Options options_;
  // Under the rules.
  std::vector<nn::Parameter> parameters_;
  SlotPool pool_;
  ModelContext context_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  // Who took a parameter.
  std::map<const Tensor*, const ShardedUnit*> owners_;
  const ShardedUnit* root_ = nullptr;
  int num_running_ = 0;
  bool gave_chunks_ = false;
  std::vector<nn::FlatChunk> chunks_;
  // Reduced over the ranks, and not looked at; undefined where there is nothing.
  Tensor reduced_used_;
};

}  // namespace fsdptrain::shard
