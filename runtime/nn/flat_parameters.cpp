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

}  // namespace

FlatParameters::FlatParameters(Module& module, const Options& options)
    : module_(module),
      options_(options),
      compute_dtype_(options.compute_dtype.value_or(options.dtype)) {
  check<DTypeError>(options.dtype == DType::Float32 || options.dtype == DType::Float64,
                    "flat parameters: trained ones are kept in float32 or float64, got {}",
                    options.dtype);
  const std::vector<Parameter> parameters = with_rules(module.parameters(), options.rules);
  for (const Parameter& parameter : parameters) {
    check<AutogradError>(is_unplaced(*parameter.tensor), "flat parameters: {} has an owner already",
                         parameter.name);
  }
  const Sets sets = in_sets(parameters, module.adjacent_parameters());
  std::vector<Group> groups{{options.dtype, true}};
  for (const Parameter& parameter : parameters) {
    const Group group = group_of(parameter);
    if (std::ranges::find(groups, group) == groups.end()) {
      groups.push_back(group);
    }
  }
  for (const Group& group : groups) {
    pack(sets, group);
  }
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

FlatParameters::Group FlatParameters::group_of(const Parameter& parameter) const {
  const Group group{parameter.spec.dtype.value_or(options_.dtype), parameter.spec.trainable};
  check<ConfigError>(!group.trainable || group.dtype == options_.dtype,
                     "flat parameters: {} is trained and must be kept in {}, got {}: freeze it, or "
                     "choose a compute dtype instead",
                     parameter.name, options_.dtype, group.dtype);
  return group;
}

FlatParameters::Sets FlatParameters::in_sets(
    const std::vector<Parameter>& parameters,
    const std::vector<std::vector<std::string>>& adjacent) const {
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter& parameter : parameters) {
    by_name.emplace(parameter.name, &parameter);
  }
  std::map<std::string, const std::vector<std::string>*> set_of;
  for (const auto& set : adjacent) {
    for (const std::string& name : set) {
      check<AutogradError>(by_name.contains(name) && set_of.emplace(name, &set).second,
                           "adjacent parameters: {} is unknown or in two sets", name);
      check<ConfigError>(group_of(*by_name[name]) == group_of(*by_name[set[0]]),
                         "adjacent parameters: {} and {} are multiplied as one: train both or "
                         "freeze both, in one dtype",
                         set[0], name);
    }
  }
  Sets sets;
  for (const Parameter& parameter : parameters) {
    const auto found = set_of.find(parameter.name);
    if (found == set_of.end()) {
      sets.push_back({&parameter});
    } else if (found->second->front() == parameter.name) {
      std::ranges::transform(*found->second, std::back_inserter(sets.emplace_back()),
                             [&](const std::string& name) { return by_name[name]; });
    }
  }
  return sets;
}

void FlatParameters::pack(const Sets& sets, const Group& group) {
  std::vector<Segment> segments;
  std::vector<const Parameter*> order;
  std::int64_t end = 0;
  for (const auto& set : sets) {
    if (group_of(*set.front()) != group) {
      continue;
    }
    end = (end + kGranule - 1) / kGranule * kGranule;
    for (const Parameter* parameter : set) {
      const std::int64_t begin = end;
      end += parameter->tensor->numel();
      segments.push_back({.name = parameter->name,
                          .begin = begin,
                          .end = end,
                          .lr_scale = parameter->spec.lr_scale,
                          .decay = parameter->spec.decay});
      order.push_back(parameter);
    }
  }
  if (order.empty()) {
    return;
  }
  Buffer& buffer = buffers_.emplace_back();
  buffer.trainable = group.trainable;
  buffer.parameters = Tensor::zeros({end}, group.dtype, options_.device, MemoryCategory::Parameter);
  buffer.compute =
      compute_dtype_ == group.dtype
          ? buffer.parameters
          : Tensor::zeros({end}, compute_dtype_, options_.device, MemoryCategory::Parameter);
  FlatChunk* chunk = nullptr;
  if (group.trainable) {
    chunk = &chunks_.emplace_back();
    chunk->parameters = buffer.parameters;
    chunk->gradients = Tensor::zeros({end}, group.dtype, options_.device, MemoryCategory::Gradient);
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
  for (Buffer& buffer : buffers_) {
    // Optimizers write without a word to the storage, and bump the epoch; nobody else writes to
    // what they do not train.
    Storage& storage = *buffer.parameters.storage();
    const std::uint64_t now = buffer.trainable ? epoch() : storage.version();
    if (buffer.parameters.dtype() != compute_dtype_ && buffer.cast_from != now) {
      kernels::copy(buffer.compute.launch(), buffer.compute.view(), buffer.parameters.view());
      buffer.compute.storage()->bump_version();
      buffer.cast_from = now;
    }
  }
}

// Gradients are where they belong already: nothing is to be reduced or released on one device.
void FlatParameters::post_backward(std::uint64_t) {}

}  // namespace fsdptrain::nn
