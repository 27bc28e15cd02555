#include "runtime/nn/flat_parameters.h"

#include <algorithm>
#include <map>

#include "kernels/copy.h"
#include "runtime/autograd/meta.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/init.h"

namespace fsdptrain::nn {
namespace {

// Parameters start on a multiple of this many elements; adjacent sets as a whole.
constexpr std::int64_t kGranule = 128;

// The chosen parameters, each adjacent set moved together to the place of its first member.
std::vector<std::vector<const Parameter*>> in_sets(
    const std::vector<Parameter>& parameters, const std::vector<std::vector<std::string>>& adjacent,
    bool trainable) {
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter& parameter : parameters) {
    by_name.emplace(parameter.name, &parameter);
  }
  std::map<std::string, const std::vector<std::string>*> set_of;
  for (const auto& set : adjacent) {
    for (const std::string& name : set) {
      check<AutogradError>(by_name.contains(name) && set_of.emplace(name, &set).second &&
                               by_name[name]->spec.trainable == by_name[set[0]]->spec.trainable,
                           "adjacent parameters: {} is unknown, in two sets, or not trainable like "
                           "the others of its set",
                           name);
    }
  }
  std::vector<std::vector<const Parameter*>> sets;
  for (const Parameter& parameter : parameters) {
    const auto found = set_of.find(parameter.name);
    if (parameter.spec.trainable != trainable ||
        (found != set_of.end() && found->second->front() != parameter.name)) {
      continue;
    }
    std::vector<const Parameter*>& set = sets.emplace_back();
    if (found == set_of.end()) {
      set.push_back(&parameter);
    } else {
      std::ranges::transform(*found->second, std::back_inserter(set),
                             [&](const std::string& name) { return by_name[name]; });
    }
  }
  return sets;
}

}  // namespace

FlatParameters::FlatParameters(Module& module, const Options& options)
    : module_(module),
      options_(options),
      compute_dtype_(options.compute_dtype.value_or(options.dtype)) {
  const std::vector<Parameter> parameters = module.parameters();
  for (const Parameter& parameter : parameters) {
    // Modules come without bytes: only an owner gives them some.
    check<AutogradError>(parameter.tensor->storage()->released(),
                         "flat parameters: {} has an owner already", parameter.name);
  }
  const auto adjacent = module.adjacent_parameters();
  pack(parameters, adjacent, true);
  pack(parameters, adjacent, false);
  attach();
  module.add_hooks({.pre_forward =
                        [this](Module::Tensors&) {
                          unshard();
                          if (!autograd::replaying()) {
                            begin_invocation();
                          }
                        },
                    .post_forward =
                        [this](Module::Tensors&) {
                          // After a replay the backward still needs the parameters.
                          if (!autograd::replaying()) {
                            end_invocation();
                            reshard();
                          }
                        },
                    .forward_failed =
                        [this] {
                          if (!autograd::replaying()) {
                            end_invocation();
                          }
                        },
                    .owner = this});
}

FlatParameters::~FlatParameters() {
  module_.remove_hooks(this);
  for (const Placed& placed : placed_) {
    *placed.parameter = unplaced_parameter(placed.compute.shape());
  }
}

void FlatParameters::pack(const std::vector<Parameter>& parameters,
                          const std::vector<std::vector<std::string>>& adjacent, bool trainable) {
  const auto sets = in_sets(parameters, adjacent, trainable);
  std::vector<Segment> segments;
  std::vector<const Parameter*> order;
  std::int64_t end = 0;
  for (const auto& set : sets) {
    end = (end + kGranule - 1) / kGranule * kGranule;
    for (const Parameter* parameter : set) {
      const std::int64_t begin = end;
      end += parameter->tensor->numel();
      segments.push_back(
          {.name = parameter->name, .begin = begin, .end = end, .decay = parameter->spec.decay});
      order.push_back(parameter);
    }
  }
  if (order.empty()) {
    return;
  }
  Buffer& buffer = buffers_.emplace_back();
  buffer.parameters =
      Tensor::zeros({end}, options_.dtype, options_.device, MemoryCategory::Parameter);
  buffer.compute =
      compute_dtype_ == options_.dtype
          ? buffer.parameters
          : Tensor::zeros({end}, compute_dtype_, options_.device, MemoryCategory::Parameter);
  FlatChunk* chunk = nullptr;
  if (trainable) {
    chunk = &chunks_.emplace_back();
    chunk->parameters = buffer.parameters;
    chunk->gradients =
        Tensor::zeros({end}, options_.dtype, options_.device, MemoryCategory::Gradient);
    chunk->segments = segments;
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    place(*order[i], buffer, segments[i], chunk);
  }
}

void FlatParameters::place(const Parameter& parameter, const Buffer& buffer, const Segment& segment,
                           const FlatChunk* chunk) {
  const Shape shape = parameter.tensor->shape();
  const auto window = [&](const Tensor& flat) {
    return flat.alias(shape, Strides::contiguous(shape), segment.begin);
  };
  Named& named = named_.emplace_back(Named{parameter.name, window(buffer.parameters), {}});
  initialize(named.values, parameter.name, parameter.spec.init, options_.seed);
  Placed& placed = placed_.emplace_back(Placed{parameter.tensor, window(buffer.compute), nullptr});
  if (chunk == nullptr) {
    return;
  }
  named.gradient = window(chunk->gradients);
  placed.slot = slots_.emplace_back(
      std::make_shared<autograd::GradientSlot>(autograd::GradientSlot{named.gradient, false}));
  placed.compute.set_requires_grad(true);
  autograd::Meta& meta = *placed.compute.autograd_meta();
  meta.name = parameter.name;
  meta.owner = reference();
  meta.slot = autograd::SlotView{named.gradient, {placed.slot}, true};
}

void FlatParameters::attach() {
  for (const Placed& placed : placed_) {
    *placed.parameter = placed.compute;
  }
}

const FlatParameters::Named& FlatParameters::find(const std::string& name) const {
  const auto found = std::ranges::find(named_, name, &Named::name);
  check(found != named_.end(), "flat parameters: there is no parameter {}", name);
  return *found;
}

std::int64_t FlatParameters::num_parameters() const {
  std::int64_t numel = 0;
  for (const Named& named : named_) {
    numel += named.values.numel();
  }
  return numel;
}

void FlatParameters::zero_grad() {
  for (const auto& slot : slots_) {
    slot->written = false;
    slot->ahead = 0;
  }
}

void FlatParameters::mark_active_segments() {
  auto slot = slots_.begin();
  for (FlatChunk& chunk : chunks_) {
    for (Segment& segment : chunk.segments) {
      segment.active = (*slot++)->written;
    }
  }
}

void FlatParameters::unshard() {
  if (compute_dtype_ == options_.dtype || cast_epoch_ == epoch()) {
    return;
  }
  for (const Buffer& buffer : buffers_) {
    kernels::copy(buffer.compute.launch(), buffer.compute.view(), buffer.parameters.view());
  }
  cast_epoch_ = epoch();
}

// Gradients are where they belong already: nothing is to be reduced or released on one device.
void FlatParameters::post_backward(std::uint64_t) {}

}  // namespace fsdptrain::nn
