#include "tests/support/flat_parameters.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/copy.h"
#include "runtime/autograd/meta.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/nn/init.h"

namespace fsdptrain::testing {
namespace {

// Sets start on a multiple of this many elements.
constexpr std::int64_t kGranule = 128;

bool is_trained(const std::vector<nn::Parameter>& set) {
  return set.front().spec.trainable;
}

}  // namespace

FlatParameters::FlatParameters(nn::Module& module, const Options& options)
    : module_(module), options_(options) {
  std::vector<Set> sets =
      in_sets(nn::with_rules(module.parameters(), options.rules), module.adjacent_parameters());
  const auto frozen = std::ranges::stable_partition(sets, is_trained);
  if (frozen.begin() != sets.begin()) {
    pack({sets.begin(), frozen.begin()});
  }
  for (const Set& set : frozen) {
    pack({set});
  }
  add_hooks();
}

FlatParameters::~FlatParameters() {
  module_.remove_hooks(this);
}

std::vector<FlatParameters::Set> FlatParameters::in_sets(
    const std::vector<nn::Parameter>& parameters,
    const std::vector<std::vector<std::string>>& adjacent) {
  std::map<std::string, nn::Parameter> left;
  for (const nn::Parameter& parameter : parameters) {
    left.emplace(parameter.name, parameter);
  }
  std::vector<Set> sets;
  for (const std::vector<std::string>& names : adjacent) {
    Set& set = sets.emplace_back();
    for (const std::string& name : names) {
      set.push_back(left.at(name));
      left.erase(name);
    }
  }
  for (const nn::Parameter& parameter : parameters) {
    if (left.contains(parameter.name)) {
      sets.push_back({parameter});
    }
  }
  return sets;
}

void FlatParameters::pack(const std::vector<Set>& sets) {
  std::vector<nn::Segment> segments;
  std::vector<const nn::Parameter*> order;
  std::int64_t end = 0;
  for (const Set& set : sets) {
    end = (end + kGranule - 1) / kGranule * kGranule;
    for (const nn::Parameter& parameter : set) {
      const std::int64_t begin = end;
      end += parameter.tensor->numel();
      segments.push_back({.name = parameter.name,
                          .begin = begin,
                          .end = end,
                          .lr_scale = parameter.spec.lr_scale,
                          .decay = parameter.spec.decay});
      order.push_back(&parameter);
    }
  }
  const DType kept = order.front()->spec.dtype.value_or(options_.dtype);
  const DType seen = options_.compute_dtype.value_or(options_.dtype);
  const auto zeros = [&](DType dtype, MemoryCategory category) {
    return Tensor::zeros({end}, dtype, options_.device, category);
  };
  Buffer& buffer = buffers_.emplace_back();
  buffer.parameters = zeros(kept, MemoryCategory::Parameter);
  buffer.compute = seen == kept ? buffer.parameters : zeros(seen, MemoryCategory::Parameter);
  if (is_trained(sets.front())) {
    chunks_.push_back({.parameters = buffer.parameters,
                       .gradients = zeros(kept, MemoryCategory::Gradient),
                       .segments = segments});
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    place(*order[i], buffer, segments[i]);
  }
}

void FlatParameters::place(const nn::Parameter& parameter, const Buffer& buffer,
                           const nn::Segment& segment) {
  check<AutogradError>(nn::is_unplaced(*parameter.tensor),
                       "flat parameters: {} has an owner already", parameter.name);
  const Shape shape = parameter.tensor->shape();
  const auto window = [&](const Tensor& flat) {
    return flat.alias(shape, Strides::contiguous(shape), segment.begin);
  };
  Named& named = named_.emplace_back(Named{parameter.name, window(buffer.parameters), {}});
  nn::initialize(named.values, parameter.name, parameter.spec.init, options_.seed);
  Tensor& seen = *parameter.tensor;
  seen = window(buffer.compute);
  if (!parameter.spec.trainable) {
    return;
  }
  named.gradient = window(chunks_.front().gradients);
  slots_.push_back(
      std::make_shared<autograd::GradientSlot>(autograd::GradientSlot{named.gradient, false}));
  seen.set_requires_grad(true);
  autograd::Meta& meta = *seen.autograd_meta();
  meta.name = parameter.name;
  meta.owner = reference();
  meta.slot = autograd::SlotView{named.gradient, {slots_.back()}, true};
}

void FlatParameters::add_hooks() {
  module_.add_hooks({.pre_forward =
                         [this](nn::Module::Tensors&) {
                           unshard();
                           if (!autograd::replaying()) {
                             begin_invocation();
                           }
                         },
                     .post_forward =
                         [this](nn::Module::Tensors&) {
                           if (!autograd::replaying()) {
                             end_invocation();
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
  for (nn::FlatChunk& chunk : chunks_) {
    for (nn::Segment& segment : chunk.segments) {
      segment.active = (*slot++)->written;
    }
  }
}

void FlatParameters::unshard() {
  if (cast_in_ == epoch()) {
    return;
  }
  cast_in_ = epoch();
  for (Buffer& buffer : buffers_) {
    if (buffer.compute.storage() != buffer.parameters.storage()) {
      kernels::copy(buffer.compute.launch(), buffer.compute.view(), buffer.parameters.view());
      buffer.compute.storage()->bump_version();
    }
  }
}

}  // namespace fsdptrain::testing
