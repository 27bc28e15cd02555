#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

// Which memory each gathered group uses in a step, so that groups take turns on a few slots and
// meet the same addresses in every step. Pure arithmetic over the order in which a step takes slots
// and gives them back; that order is the same on all ranks, and so is the plan.
namespace fsdptrain::shard {

enum class SlotKind : std::uint8_t {
  // Gathered parameters, the input and output of an all-gather.
  Parameters,
  // Whole gradients, the input and output of a reduce-scatter.
  Gradients,
};

enum class Phase : std::uint8_t { Forward, Backward };

// What a slot is taken for: the phase is that in which it is taken.
struct SlotUse {
  std::uint32_t group = 0;
  Phase phase = Phase::Forward;
  SlotKind kind = SlotKind::Parameters;
  // Of the group's layout.
  std::size_t buffer = 0;

  friend auto operator<=>(const SlotUse&, const SlotUse&) = default;
};

// "gradients of group 3 buffer 0 in the backward"
std::string to_string(const SlotUse& use);

struct SlotEvent {
  enum class Action : std::uint8_t {
    Acquire,
    // Of what this use has acquired and not released, the oldest.
    Release,
  };

  Action action = Action::Acquire;
  SlotUse use;
  // Of an Acquire.
  std::size_t nbytes = 0;
};

// Bytes of the pool, a whole size class.
struct Slot {
  std::size_t offset = 0;
  std::size_t nbytes = 0;

  friend bool operator==(const Slot&, const Slot&) = default;
};

// Slots of one size, next to each other in the pool.
struct SlotClass {
  std::size_t slot_nbytes = 0;
  std::size_t num_slots = 0;
  std::size_t offset = 0;

  std::size_t nbytes() const { return slot_nbytes * num_slots; }
  friend bool operator==(const SlotClass&, const SlotClass&) = default;
};

struct SlotPlan {
  // By size. There are as many slots of a size as are in use at once, no more.
  std::vector<SlotClass> classes;
  // By use, one for each time that the step acquires it.
  std::map<SlotUse, std::vector<Slot>> slots;

  std::size_t pool_nbytes() const;
  // For the n-th time (from 0) that a step acquires it; nothing where the plan did not see that.
  std::optional<Slot> find(const SlotUse& use, std::size_t occurrence) const;

  friend bool operator==(const SlotPlan&, const SlotPlan&) = default;
};

// The events of one step, at the end of which nothing is held. Error for a release of what is not
// held, a hold that does not end, and sizes that size_class() or an address refuses.
SlotPlan plan_slots(std::span<const SlotEvent> events);

}  // namespace fsdptrain::shard
