#include <algorithm>
#include <utility>

#include "runtime/ops/inplace.h"
#include "shard/param_group.h"

// How gradients come and go.
namespace fsdptrain::shard {

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
  if (behavior_.requires_gradient_sync) {
    reduce_all(invocation);
  } else {
    prepare_gradients();
    unsynced_ = true;
  }
  if (const auto found = open_backwards_.find(invocation); found != open_backwards_.end()) {
    found->second.is_reduced = true;
  }
  leave_backward(invocation);
}

void ParamGroup::reduce_all(std::uint64_t invocation) {
  // Before this takes slots: what is under way has given back its own.
  context_.begin_reduction(*this);
  finish_reductions();
  // Also where no gradient came: ranks meet by what the backward reaches, not by what it finds
  // there.
  prepare_gradients();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].trainable()) {
      reduce(i, invocation);
    }
  }
  ++num_reductions_;
  unsynced_ = false;
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
      Reducing{index, num_reductions_, std::exchange(gradients_[index], {}), std::nullopt});
  const Tensor& whole = reducing.whole.values;
  buffer.complete_gradients(whole);
  buffer.release_gradients();
  const double divisor = options_.gradient_divide_factor.value_or(1);
  if (ranks_.size() == 1 && divisor != 1) {
    ops::scale_(whole, 1 / divisor);
  } else if (ranks_.size() > 1 && whole.numel() > 0) {
    reducing.work = ranks_.issue(comm::reduce_scatter(buffer.own_part(whole), whole, reduction(),
                                                      tag(comm::Direction::Backward, invocation)));
  }
}

void ParamGroup::finish_reductions() {
  for (Reducing& reducing : std::exchange(reducing_, {})) {
    if (reducing.work) {
      reducing.work->wait();
    }
    buffers_[reducing.buffer].accumulate(reducing.whole.values, reducing.number);
    give_back(reducing.whole);
  }
}

void ParamGroup::finish_gradients() {
  for (FlatBuffer& buffer : buffers_) {
    buffer.finish_gradients();
  }
}

bool ParamGroup::gradients_are_final() const {
  return reducing_.empty() && std::ranges::all_of(buffers_, &FlatBuffer::gradients_are_final);
}

}  // namespace fsdptrain::shard
