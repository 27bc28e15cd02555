#include "tools/plan/phase_watch.h"

#include <algorithm>
#include <utility>

#include "runtime/autograd/meta.h"
#include "runtime/autograd/recompute.h"

namespace fsdptrain::tools {
namespace {

void merge(MemoryCounters& into, const MemoryCounters& later) {
  std::array<std::int64_t, kNumMemoryCategories> peak = into.peak;
  for (std::size_t category = 0; category < kNumMemoryCategories; ++category) {
    peak[category] = std::max(peak[category], later.peak[category]);
  }
  const MemoryCounters before = into;
  into = later;
  into.peak = peak;
  into.peak_total = std::max(before.peak_total, later.peak_total);
}

}  // namespace

PhaseWatch::PhaseWatch(models::Decoder& model, shard::ShardedModel& sharded, Allocator& allocator)
    : allocator_(allocator) {
  const std::vector<nn::Module*> blocks = model.blocks();
  for (const auto& unit : sharded.units()) {
    for (nn::Module* const module : unit->modules()) {
      if (module == &model) {
        watch_root(*module);
      } else {
        watch(*module, unit->name(), !blocks.empty() && module == blocks.front());
      }
      modules_.push_back(module);
    }
  }
}

PhaseWatch::~PhaseWatch() {
  for (nn::Module* const module : modules_) {
    module->remove_hooks(this);
  }
}

void PhaseWatch::watch(nn::Module& module, const std::string& name, bool is_first_block) {
  module.add_hooks({.pre_forward =
                        [this, name, is_first_block](nn::Module::Tensors& inputs) {
                          if (autograd::replaying()) {
                            return;
                          }
                          begin("the forward of " + name);
                          if (is_first_block) {
                            at_backward_of(inputs.front(), "the backward of the embeddings");
                          }
                        },
                    .post_forward =
                        [this, name](nn::Module::Tensors& outputs) {
                          if (!autograd::replaying()) {
                            at_backward_of(outputs.front(), "the backward of " + name);
                            begin("the forward of the head");
                          }
                        },
                    .owner = this});
}

void PhaseWatch::watch_root(nn::Module& module) {
  module.add_hooks({.pre_forward =
                        [this](nn::Module::Tensors&) {
                          if (!autograd::replaying()) {
                            begin("the forward of the embeddings");
                          }
                        },
                    .post_forward =
                        [this](nn::Module::Tensors& outputs) {
                          if (!autograd::replaying()) {
                            at_backward_of(outputs.front(), "the backward of the head");
                          }
                        },
                    .owner = this});
}

void PhaseWatch::at_backward_of(const Tensor& tensor, const std::string& name) {
  if (tensor.defined() && tensor.requires_grad() && !tensor.is_leaf()) {
    auto& hooks = tensor.autograd_meta()->pre_backward_hooks;
    hooks.insert(hooks.begin(), [this, name] { begin(name); });
  }
}

void PhaseWatch::begin(std::string name) {
  end();
  name_ = std::move(name);
  live_ = allocator_.counters().live_total;
  allocator_.reset_peaks();
}

void PhaseWatch::end() {
  const MemoryCounters& memory = allocator_.counters();
  // What took no memory and gave none back was over at once.
  if (name_.empty() || (memory.peak_total == live_ && memory.live_total == live_)) {
    return;
  }
  const auto same = std::ranges::find(phases_, name_, &StepPhase::name);
  if (same == phases_.end()) {
    phases_.push_back({name_, memory});
  } else {
    merge(same->memory, memory);
  }
}

std::vector<StepPhase> PhaseWatch::take() {
  end();
  name_.clear();
  return std::exchange(phases_, {});
}

}  // namespace fsdptrain::tools
