#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "shard/slot_plan.h"

namespace fsdptrain::testing {

// A model of equal blocks, and how a step gathers them.
struct StepSchedule {
  int num_blocks = 1;
  // Groups that are gathered ahead of the one that computes.
  int prefetch = 1;
  // Reductions that are under way while the next group computes.
  int open_reductions = 1;
  // The last block keeps its parameters between forward and backward, which begins with it.
  bool keep_last = true;
  int num_micro_batches = 1;
  std::size_t parameter_nbytes = 0;
  std::size_t gradient_nbytes = 0;
};

// The slots that the steps of such a model take and give back, as a schedule with that much
// prefetch orders them: gathers before the compute of the group in front of them, a reduction's
// wait before the next reduction but `open_reductions`.
class StepEvents {
 public:
  explicit StepEvents(const StepSchedule& schedule) : schedule_(schedule) {
    for (int i = 0; i < schedule.num_micro_batches; ++i) {
      forward();
      backward();
    }
  }

  const std::vector<shard::SlotEvent>& events() const { return events_; }

 private:
  using Action = shard::SlotEvent::Action;

  void push(Action action, shard::SlotUse use) {
    const bool of_parameters = use.kind == shard::SlotKind::Parameters;
    events_.push_back(
        {action, use, of_parameters ? schedule_.parameter_nbytes : schedule_.gradient_nbytes});
  }

  void unshard(int block, shard::Phase phase) {
    if (block >= 0 && block < schedule_.num_blocks && !unsharded_.contains(block)) {
      unsharded_.insert(block);
      phases_.resize(static_cast<std::size_t>(schedule_.num_blocks));
      phases_[static_cast<std::size_t>(block)] = phase;
      push(Action::Acquire, parameters_of(block, phase));
    }
  }
  void reshard(int block) {
    unsharded_.erase(block);
    push(Action::Release, parameters_of(block, phases_[static_cast<std::size_t>(block)]));
  }

  void forward() {
    for (int block = 0; block < schedule_.num_blocks; ++block) {
      for (int ahead = 0; ahead <= schedule_.prefetch; ++ahead) {
        unshard(block + ahead, shard::Phase::Forward);
      }
      if (!schedule_.keep_last || block + 1 < schedule_.num_blocks) {
        reshard(block);
      }
    }
  }

  void backward() {
    for (int block = schedule_.num_blocks - 1; block >= 0; --block) {
      for (int ahead = 0; ahead <= schedule_.prefetch; ++ahead) {
        unshard(block - ahead, shard::Phase::Backward);
      }
      push(Action::Acquire, gradients_of(block));
      reshard(block);
      reducing_.push_back(block);
      wait_for_reductions(schedule_.open_reductions);
    }
    wait_for_reductions(0);
  }

  void wait_for_reductions(int but) {
    while (reducing_.size() > static_cast<std::size_t>(but)) {
      push(Action::Release, gradients_of(reducing_.front()));
      reducing_.pop_front();
    }
  }

  static shard::SlotUse parameters_of(int block, shard::Phase phase) {
    return {static_cast<std::uint32_t>(block), phase, shard::SlotKind::Parameters};
  }
  static shard::SlotUse gradients_of(int block) {
    return {static_cast<std::uint32_t>(block), shard::Phase::Backward, shard::SlotKind::Gradients};
  }

  StepSchedule schedule_;
  std::set<int> unsharded_;
  std::vector<shard::Phase> phases_;
  std::deque<int> reducing_;
  std::vector<shard::SlotEvent> events_;
};

}  // namespace fsdptrain::testing
