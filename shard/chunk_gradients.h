#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace fsdptrain::shard {

// How the gradients of several backwards are added up.
enum class Accumulation : std::uint8_t {
  // One after the other.
  Sharded,
  // Those of 2^k backwards first, as ranks add up theirs: see ChunkGradients.
  Exact,
};

// The gradients of a rank's chunk, added up over what reductions bring since forget(). Or, where
// backwards write to them directly: open() until close().
//
// Exact sums are those of a binary counter, whose level k holds what 2^k backwards have brought.
// Where micro-batch g of a step runs on rank g mod W as its number g div W, the sums over ranks and
// those over backwards are then parts of one tree over g: for W = 1, 2, 4, ... the same bits. Of a
// group that is reduced several times in a backward, the first ones have a counter, the second ones
// another, and so on; these are added last, the first one first. What adds zero, and so a
// micro-batch without targets, changes no bit: no sum is -0.
class ChunkGradients {
 public:
  // Of a chunk that is not trained.
  ChunkGradients() = default;
  // `values`: one dimension, the dtype of sums.
  ChunkGradients(const Tensor& values, Accumulation accumulation);

  // The sum, while it is final; zeros or something older where nothing was added.
  const Tensor& values() const { return values_; }
  bool has_sum() const { return has_sum_; }
  // Exact sums are while nothing was added since finish().
  bool is_final() const { return counters_.empty(); }

  // Where this rank's backwards make their sum: values(), or memory beside them where these have
  // been closed. Not initialised.
  const Tensor& open();
  // What open() gave has been reduced over replicas, and is in values().
  void close();

  // Adds what a reduction has brought, in any floating dtype. It is reduction number `number`, from
  // 0, of its backward.
  void add(const Tensor& reduced, std::size_t number);
  // values() become final, and what levels of the counters took is given back.
  void finish();
  void forget();

 private:
  // Of a counter: higher ones come first.
  struct Level {
    int level = 0;
    Tensor sum;
  };
  using Counter = std::vector<Level>;

  // Not initialised.
  Tensor make_sum() const;
  void add_to_values(const Tensor& more);
  void count(Counter& counter, const Tensor& reduced);
  // Where a counter keeps what is added first.
  Tensor first_sum(const Tensor& reduced);
  static void carry(Counter& counter);

  Tensor values_;
  Accumulation accumulation_ = Accumulation::Sharded;
  // Something was added since forget(); with exact sums values_ may be the oldest level for now.
  bool has_sum_ = false;
  // By number of the reduction in its backward.
  std::vector<Counter> counters_;
  bool is_closed_ = false;
  // What was opened since then; undefined if nothing was.
  Tensor beside_;
};

}  // namespace fsdptrain::shard
