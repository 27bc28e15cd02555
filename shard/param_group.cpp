#include "shard/param_group.h"

#include <algorithm>
#include <utility>

#include "kernels/copy.h"
#include "runtime/autograd/engine.h"
#include "runtime/autograd/meta.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/inplace.h"

namespace fsdptrain::shard {
namespace {

// A group may be gathered ahead before the backward reaches it.
bool in_pass() {
  return current_context().autograd.pass != nullptr;
}

}  // namespace

ParamGroup::ParamGroup(nn::Module& module, comm::ProcessGroup& ranks, const Options& options)
    : module_(module), ranks_(ranks), options_(options) {
  take_parameters();
  make_buffers();
  attach();
  module.add_hooks({.pre_forward = [this](nn::Module::Tensors&) { pre_forward(); },
                    .post_forward = [this](nn::Module::Tensors& outputs) { post_forward(outputs); },
                    .forward_failed = [this] { forward_failed(); },
                    .owner = this});
}

ParamGroup::~ParamGroup() {
  module_.remove_hooks(this);
  for (const nn::Parameter& parameter : parameters_) {
    *parameter.tensor = nn::unplaced_parameter(parameter.tensor->shape());
  }
}

void ParamGroup::take_parameters() {
  for (nn::Parameter& parameter : module_.parameters()) {
    if (nn::is_unplaced(*parameter.tensor)) {
      parameter.name = options_.path + parameter.name;
      parameters_.push_back(std::move(parameter));
    }
  }
  check<AutogradError>(!parameters_.empty(),
                       "param group: the module {} has no parameters, or all of them have an owner "
                       "already",
                       options_.path);
  parameters_ = nn::with_rules(std::move(parameters_), options_.rules);
}

std::vector<std::vector<std::string>> ParamGroup::adjacent() const {
  std::vector<std::vector<std::string>> sets;
  for (std::vector<std::string>& set : module_.adjacent_parameters()) {
    for (std::string& name : set) {
      name = options_.path + name;
    }
    const bool is_here = std::ranges::any_of(set, [&](const std::string& name) {
      return std::ranges::find(parameters_, name, &nn::Parameter::name) != parameters_.end();
    });
    if (is_here) {
      sets.push_back(std::move(set));
    }
  }
  return sets;
}

void ParamGroup::make_buffers() {
  const auto sets = adjacent();
  GroupLayout layout = plan_layout(with_policy(parameters_, options_.dtype, options_.policy),
                                   ranks_.size(), {.adjacent = sets});
  for (BufferLayout& buffer : layout.buffers) {
    buffers_.emplace_back(std::move(buffer), parameters_, sets,
                          FlatBuffer::Options{.rank = ranks_.rank(),
                                              .device = ranks_.device(),
                                              .seed = options_.seed,
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

bool ParamGroup::aliases_parameters(const FlatBuffer& buffer) const {
  const BufferKey& key = buffer.layout().key();
  return ranks_.size() == 1 && key.gathered == key.original;
}

bool ParamGroup::aliases_gradients(const FlatBuffer& buffer) const {
  const BufferKey& key = buffer.layout().key();
  return ranks_.size() == 1 && key.reduce == key.original &&
         options_.gradient_divide_factor.value_or(1) == 1;
}

comm::Tag ParamGroup::tag(comm::Direction direction, std::uint64_t invocation) const {
  comm::Tag tag = options_.tag;
  tag.direction = direction;
  tag.invocation = static_cast<std::uint32_t>(invocation);
  return tag;
}

ParamGroup::Whole ParamGroup::take(std::size_t index, SlotKind kind) {
  const FlatBuffer& buffer = buffers_[index];
  const BufferKey& key = buffer.layout().key();
  const bool of_parameters = kind == SlotKind::Parameters;
  if (of_parameters ? aliases_parameters(buffer) : aliases_gradients(buffer)) {
    return {of_parameters ? buffer.chunk() : buffer.gradients(), std::nullopt};
  }
  const DType dtype = of_parameters ? key.gathered : *key.reduce;
  if (options_.pool == nullptr) {
    return {ranks_.allocate({buffer.layout().numel()}, dtype), std::nullopt};
  }
  const SlotUse use{.group = options_.tag.group,
                    .phase = in_pass() ? Phase::Backward : Phase::Forward,
                    .kind = kind,
                    .buffer = index};
  return {options_.pool->acquire(use, buffer.layout().numel(), dtype), use};
}

void ParamGroup::give_back(Whole& whole) {
  if (whole.use) {
    options_.pool->release(*whole.use);
  }
  whole = {};
}

ParamGroup::Whole ParamGroup::gather(std::size_t index) {
  const FlatBuffer& buffer = buffers_[index];
  Whole whole = take(index, SlotKind::Parameters);
  if (aliases_parameters(buffer)) {
    return whole;
  }
  const Tensor own = buffer.own_part(whole.values);
  kernels::copy(own.launch(), own.view(), buffer.chunk().view());
  if (ranks_.size() > 1 && buffer.layout().numel() > 0) {
    const auto direction = in_pass() ? comm::Direction::Backward : comm::Direction::Forward;
    gathering_.push_back(
        ranks_.issue(comm::all_gather(whole.values, own, tag(direction, num_gathers_))));
  }
  return whole;
}

void ParamGroup::issue_unshard() {
  if (state_ != State::Sharded && gathered_epoch_ == epoch()) {
    return;
  }
  reshard();
  ++num_gathers_;
  gathered_epoch_ = epoch();
  state_ = State::Gathering;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    gathered_[i] = gather(i);
  }
}

void ParamGroup::wait_for_gathering() {
  for (comm::Work& work : std::exchange(gathering_, {})) {
    work.wait();
  }
}

void ParamGroup::unshard() {
  issue_unshard();
  if (state_ == State::Unsharded) {
    return;
  }
  wait_for_gathering();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].place_parameters(gathered_[i].values);
  }
  state_ = State::Unsharded;
}

void ParamGroup::reshard() {
  // The other ranks still read this one's part.
  wait_for_gathering();
  for (FlatBuffer& buffer : buffers_) {
    buffer.release_parameters();
  }
  for (Whole& whole : gathered_) {
    give_back(whole);
  }
  state_ = State::Sharded;
}

void ParamGroup::pre_forward() {
  check<AutogradError>(!in_backward_ || autograd::replaying(),
                       "param group: a backward has not ended: if it failed, call "
                       "reset_iter_state() on all ranks");
  if (autograd::replaying()) {
    // The region may be larger than this module, whose own backward is still to come.
    enter_backward();
    unshard();
    return;
  }
  unshard();
  begin_invocation();
}

void ParamGroup::post_forward(const nn::Module::Tensors& outputs) {
  if (autograd::replaying()) {
    return;
  }
  const std::uint64_t invocation = current_invocation().id;
  end_invocation();
  for (const Tensor& output : outputs) {
    // Nothing of the module is behind a parameter that it hands out.
    if (output.defined() && !output.is_leaf()) {
      output.autograd_meta()->pre_backward_hooks.emplace_back(
          [owner = reference(), invocation, name = parameters_.empty() ? "" : parameters_[0].name] {
            static_cast<ParamGroup&>(owner.of(name)).pre_backward(invocation);
          });
    }
  }
  reshard();
}

void ParamGroup::forward_failed() {
  if (!autograd::replaying()) {
    end_invocation();
    reshard();
  }
}

void ParamGroup::enter_backward() {
  if (!in_backward_) {
    in_backward_ = true;
    autograd::queue_callback([this] { finish_backward(); });
  }
}

void ParamGroup::pre_backward(std::uint64_t invocation) {
  open_backwards_.insert(invocation);
  enter_backward();
  unshard();
}

void ParamGroup::prepare_gradients() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    FlatBuffer& buffer = buffers_[i];
    if (!buffer.trainable() || buffer.gradients_placed()) {
      continue;
    }
    gradients_[i] = take(i, SlotKind::Gradients);
    buffer.place_gradients(gradients_[i].values);
  }
}

void ParamGroup::post_backward(std::uint64_t invocation) {
  finish_reductions();
  // Also where no gradient came: ranks meet by what the pass reaches, not by what it finds there.
  prepare_gradients();
  open_backwards_.erase(invocation);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].trainable()) {
      reduce(i, invocation);
    }
  }
  if (open_backwards_.empty()) {
    reshard();
  }
}

comm::Reduction ParamGroup::reduction() const {
  const double factor = options_.gradient_divide_factor.value_or(ranks_.size());
  if (factor == ranks_.size()) {
    return {.op = comm::ReduceOp::Avg};
  }
  if (factor == 1) {
    return {.op = comm::ReduceOp::Sum};
  }
  return {.op = comm::ReduceOp::PremulSum, .factor = 1 / factor};
}

void ParamGroup::reduce(std::size_t index, std::uint64_t invocation) {
  FlatBuffer& buffer = buffers_[index];
  if (aliases_gradients(buffer)) {
    buffer.note_gradients();
    return;
  }
  Reducing& reducing = reducing_.emplace_back(
      Reducing{index, std::exchange(gradients_[index], Whole{}), std::nullopt});
  const Tensor& whole = reducing.whole.values;
  buffer.complete_gradients(whole);
  buffer.release_gradients();
  if (ranks_.size() == 1) {
    ops::scale_(whole, 1 / options_.gradient_divide_factor.value_or(1));
  } else if (whole.numel() > 0) {
    reducing.work = ranks_.issue(comm::reduce_scatter(buffer.own_part(whole), whole, reduction(),
                                                      tag(comm::Direction::Backward, invocation)));
  }
}

void ParamGroup::finish_reductions() {
  for (Reducing& reducing : std::exchange(reducing_, {})) {
    if (reducing.work) {
      reducing.work->wait();
    }
    FlatBuffer& buffer = buffers_[reducing.buffer];
    buffer.accumulate(buffer.own_part(reducing.whole.values));
    give_back(reducing.whole);
  }
}

void ParamGroup::finish_backward() {
  finish_reductions();
  open_backwards_.clear();
  reshard();
  in_backward_ = false;
}

void ParamGroup::zero_grad() {
  for (FlatBuffer& buffer : buffers_) {
    buffer.forget_gradients();
    buffer.release_gradients();
  }
  for (Whole& whole : gradients_) {
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

void ParamGroup::reset_iter_state() {
  finish_reductions();
  zero_grad();
  open_backwards_.clear();
  in_backward_ = false;
  reshard();
}

}  // namespace fsdptrain::shard
