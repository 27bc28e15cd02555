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
// What is given back is kept, and the next request of its size class takes it. The first step that
// is typical is what a plan is made of: from then on every use has the same bytes in every step,
// those that it had in that one, and nothing is allocated.
//
// A request that the plan does not foresee gets any slot of its size class that is free: a step of
// more backwards than the one of the plan needs no more of them at once. If none is, it never
// waits: it is allocated, and what it gives back is kept for others of its kind until the step is
// over. If that step is typical, it is what the plan is made of from then on. Requests are the same
// on all ranks, in the same order, and so is what is allocated.
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
  // A step is over, and the next one begins. The first one that took anything and is `typical` of
  // those to come is what the plan is made of, and then each such one that it had too few slots
  // for. Error, naming one, if a use has not been released.
  void end_step(bool typical = true);
  // Forgets a step that failed, and what it holds.
  void abandon_step();

  // Once a typical step is over: the first step, if its order was known from the beginning.
  const std::optional<SlotPlan>& plan() const { return plan_; }
  // Requests that there was no slot for.
  std::int64_t num_unplanned() const { return num_unplanned_; }

 private:
  // Of one size class; numbered as in a plan, where the lowest number that is free comes first.
  struct Blocks {
    std::vector<Tensor> bytes;
    std::set<std::size_t> free;
  };
  struct Held {
    Tensor bytes;
    // In the plan; none where it is of blocks_.
    std::optional<Slot> slot;
    std::size_t slot_nbytes = 0;
    std::size_t number = 0;
  };

  // Of one size class, the lowest.
  std::optional<Slot> free_slot(std::size_t slot_nbytes) const;
  Held take(const SlotUse& use, std::size_t nbytes);
  Held take_block(std::size_t nbytes);
  // Makes what the step that is over has used the slots of its plan.
  void make_slots();
  void forget_step();

  comm::ProcessGroup& ranks_;
  std::optional<SlotPlan> plan_;
  // Of the step under way, and whether the plan had a slot for all of it.
  std::vector<SlotEvent> events_;
  bool fits_plan_ = true;
  std::map<SlotUse, std::size_t> occurrences_;
  std::map<SlotUse, std::deque<Held>> held_;
  // By size class, what no plan has: all of the pool until there is one, then what it did not
  // foresee in the step under way.
  std::map<std::size_t, Blocks> blocks_;
  // By their offset in the plan; and those in use.
  std::map<std::size_t, Tensor> slots_;
  std::set<std::size_t> in_use_;
  std::int64_t num_unplanned_ = 0;
};

}  // namespace fsdptrain::shard
