#include <algorithm>
#include <utility>

#include "runtime/ops/inplace.h"
#include "shard/param_group.h"

// How gradients come and go.
namespace fsdptrain::shard {

void ParamGroup::prepare_gradients() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].trainable()) {
      place_gradients(i);
    }
  }
}

void ParamGroup::place_gradients(std::size_t index) {
  if (!buffers_[index].gradients_placed()) {
    gradients_[index] = take(index, SlotKind::Gradients);
    buffers_[index].place_gradients(gradients_[index].values);
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
  const int num_replicas = options_.replicas == nullptr ? 1 : options_.replicas->size();
  const double num_ranks = ranks_.size() * num_replicas;
  const double factor = options_.gradient_divide_factor.value_or(num_ranks);
  if (factor == num_ranks) {
    return {.op = comm::ReduceOp::Avg};
  }
  if (factor == 1) {
    return {.op = comm::ReduceOp::Sum};
  }
  return {.op = comm::ReduceOp::PremulSum, .factor = 1 / factor};
}

Reducing& ParamGroup::take_for_reduction(std::size_t index) {
  Reducing& reducing = reducing_.emplace_back(
      Reducing{index, num_reductions_, std::exchange(gradients_[index], {}), std::nullopt});
  buffers_[index].complete_gradients(reducing.whole.values);
  buffers_[index].release_gradients();
  return reducing;
}

void ParamGroup::reduce(std::size_t index, std::uint64_t invocation) {
  FlatBuffer& buffer = buffers_[index];
  if (aliases_gradients(buffer)) {
    buffer.note_gradients();
    return;
  }
  Reducing& reducing = take_for_reduction(index);
  const Tensor& whole = reducing.whole.values;
  if (whole.numel() == 0) {
    return;
  }
  const double divisor = options_.gradient_divide_factor.value_or(1);
  const comm::Tag of = tag(comm::Direction::Backward, invocation);
  if (ranks_.size() > 1) {
    reducing.work =
        ranks_.issue(comm::reduce_scatter(buffer.own_part(whole), whole, reduction(), of));
  } else if (options_.replicas != nullptr) {
    reducing.work = options_.replicas->issue(comm::all_reduce(whole, reduction(), of));
  } else if (divisor != 1) {
    ops::scale_(whole, 1 / divisor);
  }
}

void ParamGroup::finish_reductions() {
  while (!reducing_.empty()) {
    // Where this throws it is not dropped, which would be another error.
    if (reducing_.front().work) {
      reducing_.front().work->wait();
    }
    Reducing reducing = std::move(reducing_.front());
    reducing_.erase(reducing_.begin());
    FlatBuffer& buffer = buffers_[reducing.buffer];
    if (aliases_gradients(buffer)) {
      buffer.close_gradients();
    } else {
      buffer.accumulate(reducing.whole.values, reducing.number);
    }
    give_back(reducing.whole);
  }
}

void ParamGroup::begin_replica_sums() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const FlatBuffer& buffer = buffers_[i];
    if (options_.replicas == nullptr || !behavior_.requires_gradient_sync || !buffer.trainable() ||
        !aliases_gradients(buffer)) {
      continue;
    }
    // Also where no gradient came: others may have one.
    place_gradients(i);
    Reducing& reducing = take_for_reduction(i);
    if (reducing.whole.values.numel() > 0) {
      reducing.work = options_.replicas->issue(
          comm::all_reduce(reducing.whole.values, reduction(), tag(comm::Direction::Backward, 0)));
    }
  }
}

void ParamGroup::finish_gradients() {
  finish_reductions();
  for (FlatBuffer& buffer : buffers_) {
    buffer.finish_gradients();
  }
}

// Of whole gradients only those that are the chunk's, and of no other rank's business, are final.
bool ParamGroup::has_open_gradients(const FlatBuffer& buffer) const {
  const bool are_own = aliases_gradients(buffer) && options_.replicas == nullptr;
  return !buffer.gradients_are_final() || (buffer.gradients_placed() && !are_own);
}

bool ParamGroup::gradients_are_final() const {
  return reducing_.empty() && std::ranges::none_of(buffers_, [&](const FlatBuffer& buffer) {
           return has_open_gradients(buffer);
         });
}

}  // namespace fsdptrain::shard
