#include "shard/param_group.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace fsdptrain::shard {
namespace {

// Those of the sets of which parameters are here.
std::vector<std::vector<std::string>> sets_of(std::vector<std::vector<std::string>> sets,
                                              const std::vector<nn::Parameter>& parameters) {
  std::erase_if(sets, [&](const std::vector<std::string>& set) {
    return std::ranges::none_of(set, [&](const std::string& name) {
      return std::ranges::find(parameters, name, &nn::Parameter::name) != parameters.end();
    });
  });
  return sets;
}

}  // namespace

ParamGroup::ParamGroup(Members members, comm::ProcessGroup& ranks, SlotPool& pool,
                       ModelContext& context, const Options& options)
    : modules_(std::move(members.modules)),
      ranks_(ranks),
      pool_(pool),
      context_(context),
      options_(options),
      parameters_(std::move(members.parameters)),
      adjacent_(sets_of(std::move(members.adjacent), parameters_)) {
  make_buffers();
  attach();
  for (nn::Module* const module : modules_) {
    add_hooks(*module);
  }
  context_.add(*this);
}

ParamGroup::~ParamGroup() {
  context_.remove(*this);
  for (nn::Module* const module : modules_) {
    module->remove_hooks(this);
  }
  for (const nn::Parameter& parameter : parameters_) {
    *parameter.tensor = nn::unplaced_parameter(parameter.tensor->shape());
  }
}

std::string ParamGroup::name() const {
  return parameters_.empty() ? std::string() : parameters_.front().name;
}

void ParamGroup::make_buffers() {
  GroupLayout layout = plan_layout(with_policy(parameters_, options_.dtype, options_.policy),
                                   ranks_.size(), {.adjacent = adjacent_});
  for (BufferLayout& buffer : layout.buffers) {
    buffers_.emplace_back(std::move(buffer), parameters_, adjacent_,
                          FlatBuffer::Options{.rank = ranks_.rank(),
                                              .device = ranks_.device(),
                                              .seed = options_.seed,
                                              .accumulation = options_.accumulation,
                                              .owner = reference()});
  }
  for (const FlatBuffer& buffer : buffers_) {
    if (buffer.trainable()) {
      chunks_.push_back({.parameters = buffer.chunk(),
                         .gradients = buffer.gradients(),
                         .segments = buffer.segments()});
    }
  }
  gathered_.resize(buffers_.size());
  gradients_.resize(buffers_.size());
}

void ParamGroup::attach() {
  for (const FlatBuffer& buffer : buffers_) {
    for (const FlatBuffer::Member& member : buffer.members()) {
      *parameters_[member.parameter].tensor = member.values;
    }
  }
}

void ParamGroup::zero_grad() {
  finish_reductions();
  num_reductions_ = 0;
  unsynced_ = false;
  for (FlatBuffer& buffer : buffers_) {
    buffer.forget_gradients();
    buffer.release_gradients();
  }
  for (WholeBuffer& whole : gradients_) {
    give_back(whole);
  }
}

void ParamGroup::mark_active_segments() {
  auto chunk = chunks_.begin();
  for (const FlatBuffer& buffer : buffers_) {
    if (buffer.trainable()) {
      buffer.mark_active((chunk++)->segments);
    }
  }
}

void ParamGroup::append_used(std::vector<double>& used) const {
  for (const FlatBuffer& buffer : buffers_) {
    for (const FlatBuffer::Member& member : buffer.members()) {
      if (buffer.trainable()) {
        used.push_back(member.has_gradient ? 1 : 0);
      }
    }
  }
}

std::span<const double> ParamGroup::note_used(std::span<const double> used) {
  for (FlatBuffer& buffer : buffers_) {
    for (std::size_t i = 0; buffer.trainable() && i < buffer.members().size(); ++i) {
      if (used.front() > 0) {
        buffer.note_gradient_elsewhere(i);
      }
      used = used.subspan(1);
    }
  }
  return used;
}

void ParamGroup::set_gradient_divide_factor(std::optional<double> factor) {
  for (const FlatBuffer& buffer : buffers_) {
    for (const FlatBuffer::Member& member : buffer.members()) {
      check<AutogradError>(!member.slot || !(member.slot->written || member.has_gradient),
                           "gradient divide factor: {} has a gradient: change the factor before "
                           "the first backward of a step",
                           parameters_[member.parameter].name);
    }
  }
  // On one rank the factor decides where gradients are.
  zero_grad();
  options_.gradient_divide_factor = factor;
}

void ParamGroup::reset_iter_state() {
  zero_grad();
  open_backwards_.clear();
  abandon_forward();
}

}  // namespace fsdptrain::shard
