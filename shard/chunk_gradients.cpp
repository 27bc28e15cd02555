#include "shard/chunk_gradients.h"

#include "kernels/copy.h"

namespace fsdptrain::shard {
namespace {

void add_to(const Tensor& sum, const Tensor& more) {
  kernels::accumulate(sum.launch(), sum.view(), more.view());
}

}  // namespace

ChunkGradients::ChunkGradients(const Tensor& values, Accumulation accumulation)
    : values_(values), accumulation_(accumulation) {}

Tensor ChunkGradients::make_sum() const {
  return Tensor::empty(values_.shape(), values_.dtype(), values_.device(),
                       MemoryCategory::Gradient);
}

const Tensor& ChunkGradients::open() {
  if (!is_closed_) {
    return values_;
  }
  if (!beside_.defined()) {
    beside_ = make_sum();
  }
  return beside_;
}

void ChunkGradients::close() {
  if (beside_.defined()) {
    add_to(values_, beside_);
    beside_ = Tensor();
  }
  is_closed_ = true;
  has_sum_ = true;
}

void ChunkGradients::add(const Tensor& reduced, std::size_t number) {
  if (accumulation_ == Accumulation::Exact) {
    if (counters_.size() <= number) {
      counters_.resize(number + 1);
    }
    count(counters_[number], reduced);
  } else if (has_sum_) {
    add_to(values_, reduced);
  } else {
    kernels::copy(values_.launch(), values_.view(), reduced.view());
    has_sum_ = true;
  }
}

// Zero and -0 make zero, so that no later sum is -0.
void ChunkGradients::add_to_values(const Tensor& more) {
  if (!has_sum_) {
    kernels::fill(values_.launch(), values_.view(), 0);
    has_sum_ = true;
  }
  add_to(values_, more);
}

void ChunkGradients::count(Counter& counter, const Tensor& reduced) {
  if (counter.empty() || counter.back().level > 0) {
    counter.push_back({0, first_sum(reduced)});
    return;
  }
  add_to(counter.back().sum, reduced);
  counter.back().level = 1;
  carry(counter);
}

Tensor ChunkGradients::first_sum(const Tensor& reduced) {
  if (!has_sum_) {
    // No memory of its own for what becomes the highest level.
    add_to_values(reduced);
    return values_;
  }
  Tensor sum = make_sum();
  kernels::copy(sum.launch(), sum.view(), reduced.view());
  return sum;
}

void ChunkGradients::carry(Counter& counter) {
  while (counter.size() > 1 && counter[counter.size() - 2].level == counter.back().level) {
    const Tensor newer = counter.back().sum;
    counter.pop_back();
    add_to(counter.back().sum, newer);
    ++counter.back().level;
  }
}

void ChunkGradients::finish() {
  for (Counter& counter : counters_) {
    // As a carry into every level.
    while (counter.size() > 1) {
      const Tensor lower = counter.back().sum;
      counter.pop_back();
      add_to(counter.back().sum, lower);
    }
    if (!counter.empty() && counter.front().sum.storage() != values_.storage()) {
      add_to_values(counter.front().sum);
    }
  }
  counters_.clear();
}

void ChunkGradients::forget() {
  counters_.clear();
  has_sum_ = false;
  is_closed_ = false;
  beside_ = Tensor();
}

}  // namespace fsdptrain::shard
