#include <utility>

#include "kernels/copy.h"
#include "runtime/base/rank_context.h"
#include "shard/param_group.h"

// How parameters come and go.
namespace fsdptrain::shard {
namespace {

// A group may be gathered ahead before the backward reaches it.
bool in_backward() {
  return current_context().autograd.pass != nullptr;
}

}  // namespace

bool ParamGroup::aliases_parameters(const FlatBuffer& buffer) const {
  const BufferKey& key = buffer.layout().key();
  return ranks_.size() == 1 && key.gathered == key.original;
}

bool ParamGroup::aliases_gradients(const FlatBuffer& buffer) const {
  const BufferKey& key = buffer.layout().key();
  // What is added up exactly comes apart for each backward.
  return ranks_.size() == 1 && key.reduce == key.original &&
         options_.accumulation == Accumulation::Sharded &&
         (options_.replicas != nullptr || options_.gradient_divide_factor.value_or(1) == 1);
}

comm::Tag ParamGroup::tag(comm::Direction direction, std::uint64_t invocation) const {
  comm::Tag tag = options_.tag;
  tag.direction = direction;
  tag.invocation = static_cast<std::uint32_t>(invocation);
  return tag;
}

WholeBuffer ParamGroup::take(std::size_t index, SlotKind kind) {
  FlatBuffer& buffer = buffers_[index];
  const BufferKey& key = buffer.layout().key();
  const bool of_parameters = kind == SlotKind::Parameters;
  if (of_parameters ? aliases_parameters(buffer) : aliases_gradients(buffer)) {
    return {of_parameters ? buffer.chunk() : buffer.open_gradients(), std::nullopt};
  }
  const DType dtype = of_parameters ? key.gathered : *key.reduce;
  // What outlives its turn has a buffer of its own.
  const bool outlives = of_parameters
                            ? !behavior_.reshard_after_backward || context_.keeps_gathered()
                            : !behavior_.requires_gradient_sync;
  if (outlives) {
    return {ranks_.allocate({buffer.layout().numel()}, dtype), std::nullopt};
  }
  const SlotUse use{.group = options_.tag.group,
                    .phase = in_backward() ? Phase::Backward : Phase::Forward,
                    .kind = kind,
                    .buffer = index};
  return {pool_.acquire(use, buffer.layout().numel(), dtype), use};
}

void ParamGroup::give_back(WholeBuffer& whole) {
  if (whole.use) {
    pool_.release(*whole.use);
  }
  whole = {};
}

WholeBuffer ParamGroup::gather(std::size_t index) {
  const FlatBuffer& buffer = buffers_[index];
  WholeBuffer whole = take(index, SlotKind::Parameters);
  if (aliases_parameters(buffer)) {
    return whole;
  }
  const Tensor own = buffer.own_part(whole.values);
  kernels::copy(own.launch(), own.view(), buffer.chunk().view());
  if (ranks_.size() > 1 && buffer.layout().numel() > 0) {
    const auto direction = in_backward() ? comm::Direction::Backward : comm::Direction::Forward;
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
  // Where one throws none is dropped, which would be another error.
  for (comm::Work& work : gathering_) {
    work.wait();
  }
  gathering_.clear();
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
  for (WholeBuffer& whole : gathered_) {
    give_back(whole);
  }
  state_ = State::Sharded;
}

void ParamGroup::drop_ahead() {
  if (state_ == State::Gathering) {
    reshard();
  }
}

}  // namespace fsdptrain::shard
