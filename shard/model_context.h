#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "shard/slot_pool.h"

namespace fsdptrain::shard {

class ParamGroup;

// What the groups of one model have to do with each other on one rank: the order in which their
// forwards run, so that a group is gathered while the one before computes; how many reductions are
// under way; the end of a backward; the end of a step for the pool of slots.
//
// Everything here follows from the order of forwards and backwards alone, never from timing, so
// that all ranks issue the same collectives in the same order.
//
// A *pass over the model* is a forward of all groups, between begin_forward() and end_forward().
// Belongs to the thread of its rank; outlives its groups.
class ModelContext {
 public:
  struct Options {
    // How many groups are gathered ahead of the one that computes.
    int prefetch = 1;
  };

  // `pool`: of the groups, whose steps end with the backward; it outlives this.
  ModelContext(SlotPool& pool, const Options& options) : pool_(pool), options_(options) {}
  ModelContext(const ModelContext&) = delete;
  ModelContext& operator=(const ModelContext&) = delete;
  ~ModelContext() = default;

  // In the same order on all ranks. A group takes itself out when it goes.
  void add(ParamGroup& group) { groups_.push_back(&group); }
  void remove(ParamGroup& group);
  const std::vector<ParamGroup*>& groups() const { return groups_; }

  // Around a forward of the model, but not around its replays.
  void begin_forward();
  void end_forward();
  void forward_failed();

  // The last backward of several that belong together: only that one waits for reductions.
  void set_is_last_backward(bool is_last) { is_last_backward_ = is_last; }
  // After a forward or backward that failed, once all groups are at rest.
  void reset();

  // By GatheredScope: from begin to end forwards without gradients leave groups gathered, and there
  // are no others. Both give back whatever is gathered.
  void begin_gathered();
  void end_gathered();

  // By groups. Whether parameters outlive the forward.
  bool keeps_gathered() const { return num_scopes_ > 0; }
  // The forward of `group` is about to compute: what comes next is gathered.
  void enter_forward(ParamGroup& group);
  // It has computed. `graph` lives as long as there can be a backward of this invocation.
  void leave_forward(ParamGroup& group, std::uint64_t invocation, std::weak_ptr<const void> graph);
  // Whether the group that leaves its forward is the first that the backward needs again.
  bool is_last_of_forward(const ParamGroup& group) const;
  // A backward has reached a group, the first or one more: at its end all of them are at rest.
  void begin_backward();
  bool in_backward() const { return in_backward_; }
  // The backward of an invocation is about to compute.
  void enter_backward(ParamGroup& group, std::uint64_t invocation);
  // `group` begins to reduce: those before it give their slots back.
  void begin_reduction(ParamGroup& group);

 private:
  // An invocation whose backward may come.
  struct Forward {
    ParamGroup* group = nullptr;
    std::uint64_t invocation = 0;
    // The number of the pass over the model.
    std::uint64_t pass = 0;
    std::weak_ptr<const void> graph;
  };

  // How the first forward will run, if groups were added in their order and the whole model last.
  // If not, a group is gathered too early, once.
  std::vector<ParamGroup*> order_of_additions() const;
  void give_back_all();
  void check_no_scope(std::string_view what) const;
  void finish_backward();
  void finish_reductions();
  void end_step();
  void prefetch_backward(const ParamGroup& group, std::size_t position);

  SlotPool& pool_;
  Options options_;
  std::vector<ParamGroup*> groups_;

  // The groups in the order in which forwards of the last pass began, and that of this pass so far.
  std::vector<ParamGroup*> expected_;
  std::vector<ParamGroup*> entered_;
  // What has entered is the beginning of what was expected.
  bool as_expected_ = false;
  bool in_forward_ = false;
  std::uint64_t num_forwards_ = 0;
  std::vector<Forward> forwards_;
  int num_scopes_ = 0;

  bool in_backward_ = false;
  bool is_last_backward_ = true;
  // Groups whose reductions are not finished, oldest first.
  std::deque<ParamGroup*> reducing_;
  // Whether the step so far shows what later ones will do: it has forwards with a backward, and the
  // order was known from the beginning.
  bool step_is_typical_ = true;
  bool step_has_forward_ = false;
};

}  // namespace fsdptrain::shard
