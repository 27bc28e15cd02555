#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "comm/process_group.h"
#include "runtime/tensor/tensor.h"
#include "shard/slot_plan.h"

namespace fsdptrain::shard {

// The memory of gathered parameters and whole gradients, for all groups of one model on one rank.
// At first each request is an allocation, and what is taken and given back is noted. From the first
// step that is typical on there is a plan: every use has the same bytes in every step, and nothing
// is allocated.
//
// What the plan does not foresee, in a step that is not as the first was, is allocated as well and
// never waits. Requests are the same on all ranks, in the same order, and so is what is allocated.
//
// Belongs to the thread of its rank; the process group outlives it.
class SlotPool {
 public:
  explicit SlotPool(comm::ProcessGroup& ranks) : ranks_(ranks) {}
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;
  ~SlotPool() = default;

  // Elements that belong to `use` until release(), not initialised.
  Tensor acquire(const SlotUse& use, std::int64_t numel, DType dtype);
  // Of what `use` has acquired and not released, the oldest. Error if there is nothing.
  void release(const SlotUse& use);

  // Whether nothing is held.
  bool idle() const;
  // A step is over, and the next one begins. The first one that is `typical` of those to come is
  // what the plan is made of. Error, naming one, if a use has not been released.
  void end_step(bool typical = true);
  // Forgets a step that failed, and what it holds.
  void abandon_step();

  // Once the first typical step is over.
  const std::optional<SlotPlan>& plan() const { return plan_; }
  // Requests that the plan had no slot for.
  std::int64_t num_unplanned() const { return num_unplanned_; }

 private:
  struct Held {
    Tensor bytes;
    // In the pool; none where it is not.
    std::optional<Slot> slot;
  };

  Held take(const SlotUse& use, std::size_t nbytes);
  Tensor allocate(std::size_t nbytes) const;

  comm::ProcessGroup& ranks_;
  std::optional<SlotPlan> plan_;
  // Of the step under way, until there is a plan.
  std::vector<SlotEvent> events_;
  std::map<SlotUse, std::size_t> occurrences_;
  std::map<SlotUse, std::deque<Held>> held_;
  // By their offset in the plan: the bytes of slots, kept once they were used; and those in use.
  std::map<std::size_t, Tensor> slots_;
  std::set<std::size_t> in_use_;
  std::int64_t num_unplanned_ = 0;
};

}  // namespace fsdptrain::shard
