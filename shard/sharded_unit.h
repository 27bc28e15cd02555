#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shard/param_group.h"
#include "shard/policy.h"

namespace fsdptrain::shard {

class ShardedModel;

// A method acts on this unit, or on all within it as well.
enum class Recurse { No, Yes };

// What unshard() has begun.
class UnshardHandle {
 public:
  explicit UnshardHandle(ParamGroup& group) : group_(&group) {}
  // Parameters have their bytes from here on. The module's forward waits as well.
  void wait() { group_->unshard(); }

 private:
  ParamGroup* group_;
};

// What one call of fully_shard() made: a module, or a list of them, whose parameters are one group.
// The ShardedModel owns it. All ranks call its methods alike, between forwards and backwards.
class ShardedUnit {
 public:
  struct Options {
    MixedPrecisionPolicy policy = {};
    // Whether parameters are given back after the forward, and gathered again for the backward.
    // Empty: yes, but not those of the root, and not where the backward begins.
    std::optional<bool> reshard_after_forward = {};
    // See ParamGroup.
    std::optional<double> gradient_divide_factor = {};
  };

  // By ShardedModel::fully_shard().
  ShardedUnit(ShardedModel& model, std::string name, ParamGroup::Members members, SlotPool& pool,
              ModelContext& context, const ParamGroup::Options& group, const Options& options);
  ShardedUnit(const ShardedUnit&) = delete;
  ShardedUnit& operator=(const ShardedUnit&) = delete;
  ~ShardedUnit();

  // Where it is in the model; "the root" for the model itself.
  const std::string& name() const { return name_; }
  ParamGroup& group() { return group_; }
  const ParamGroup& group() const { return group_; }
  const std::vector<nn::Module*>& modules() const { return modules_; }
  // Every parameter of the modules, whoever owns it.
  const std::set<const Tensor*>& tensors() const { return tensors_; }
  bool contains(const ShardedUnit& other) const;

  // Gathers the parameters until reshard(), or until a forward or backward gives them back. With
  // `async` the gather is only begun.
  UnshardHandle unshard(bool async = false);
  void reshard() { group_.reshard(); }

  void set_reshard_after_forward(bool reshard, Recurse recurse = Recurse::Yes);
  // Parameters stay gathered from backward to forward, until an update.
  void set_reshard_after_backward(bool reshard, Recurse recurse = Recurse::Yes);
  // Without, gradients of backwards are added up whole, in memory of their own of the size of the
  // parameters; the next backward with it reduces what there is.
  void set_requires_gradient_sync(bool sync, Recurse recurse = Recurse::Yes);
  // For modules whose backward does not read parameters, such as embeddings.
  void set_unshard_in_backward(bool unshard);
  // See ParamGroup.
  void set_gradient_divide_factor(std::optional<double> factor);
  // What is gathered once this unit is, in place of what follows from the order of forwards.
  void set_modules_to_forward_prefetch(const std::vector<ShardedUnit*>& units);
  void set_modules_to_backward_prefetch(const std::vector<ShardedUnit*>& units);

  // By the model, at its first forward.
  void become_part(bool is_root);

 private:
  void add_hooks(nn::Module& module);
  void pre_forward(nn::Module::Tensors& inputs);
  void post_forward(nn::Module::Tensors& outputs);
  void forward_failed();
  template <class Set>
  void for_each(Recurse recurse, const Set& set);

  ShardedModel& model_;
  std::string name_;
  Options options_;
  std::vector<nn::Module*> modules_;
  std::set<const Tensor*> tensors_;
  // The hooks of the unit surround those of its group.
  struct Hooks {
    explicit Hooks(ShardedUnit& of);
    Hooks(const Hooks&) = delete;
    Hooks& operator=(const Hooks&) = delete;
    ~Hooks();
    ShardedUnit& unit;
  };
  Hooks hooks_;
  ParamGroup group_;
};

}  // namespace fsdptrain::shard
