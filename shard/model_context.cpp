#include "shard/model_context.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "shard/param_group.h"

namespace fsdptrain::shard {
namespace {

// Groups whose reductions are under way at once: with that of the group which computes there is one
// slot of gradients more.
constexpr std::size_t kMaxReductions = 1;

}  // namespace

void ModelContext::remove(ParamGroup& group) {
  std::erase(groups_, &group);
  std::erase(expected_, &group);
  std::erase(entered_, &group);
  std::erase(reducing_, &group);
  std::erase_if(forwards_, [&](const Forward& forward) { return forward.group == &group; });
}

void ModelContext::check_no_scope(std::string_view what) const {
  check<AutogradError>(num_scopes_ == 0,
                       "gathered scope: a {} while a GatheredScope lives, which is for forwards "
                       "without gradients: end it before training goes on",
                       what);
}

void ModelContext::begin_gathered() {
  check<AutogradError>(!in_forward_ && !in_backward_,
                       "gathered scope: it begins within a {} of the model, or after one that "
                       "failed: then call reset_iter_state() on all ranks",
                       in_forward_ ? "forward" : "backward");
  if (num_scopes_ == 0) {
    give_back_all();
  }
  ++num_scopes_;
}

void ModelContext::end_gathered() {
  if (--num_scopes_ == 0) {
    give_back_all();
  }
}

void ModelContext::give_back_all() {
  for (ParamGroup* const group : groups_) {
    group->give_back_kept();
    group->reshard();
  }
  step_is_typical_ = false;
  end_step();
}

void ModelContext::begin_forward() {
  if (autograd::grad_enabled()) {
    check_no_scope("forward with gradients begins");
  }
  in_forward_ = true;
  step_has_forward_ = true;
  ++num_forwards_;
  entered_.clear();
  as_expected_ = true;
  if (expected_.empty()) {
    expected_ = order_of_additions();
  }
  for (ParamGroup* const group : groups_) {
    group->give_back_kept();
  }
}

std::vector<ParamGroup*> ModelContext::order_of_additions() const {
  std::vector<ParamGroup*> order;
  for (ParamGroup* const group : groups_) {
    if (!group->parameters().empty()) {
      order.push_back(group);
    }
  }
  // The whole model runs first, if it has parameters of its own.
  if (!order.empty() && order.back() == groups_.back()) {
    std::ranges::rotate(order, std::prev(order.end()));
  }
  return order;
}

void ModelContext::end_forward() {
  in_forward_ = false;
  // Nothing is gathered ahead in a pass that is not as the one before.
  step_is_typical_ = step_is_typical_ && (options_.prefetch == 0 || entered_ == expected_);
  if (entered_ != expected_) {
    expected_ = entered_;
  }
  for (ParamGroup* const group : groups_) {
    group->end_partial_forward();
    group->drop_ahead();
  }
  if (!autograd::grad_enabled()) {
    step_is_typical_ = false;
    end_step();
  }
}

void ModelContext::forward_failed() {
  in_forward_ = false;
  step_is_typical_ = false;
  for (ParamGroup* const group : groups_) {
    group->abandon_forward();
  }
  end_step();
}

void ModelContext::enter_forward(ParamGroup& group) {
  if (group.prefetch().forward) {
    for (ParamGroup* const next : *group.prefetch().forward) {
      next->issue_unshard();
    }
  }
  if (!in_forward_) {
    return;
  }
  entered_.push_back(&group);
  const std::size_t position = entered_.size();
  as_expected_ = as_expected_ && position <= expected_.size() && expected_[position - 1] == &group;
  if (!as_expected_ || group.prefetch().forward) {
    return;
  }
  const std::size_t end =
      std::min(expected_.size(), position + static_cast<std::size_t>(options_.prefetch));
  for (std::size_t i = position; i < end; ++i) {
    expected_[i]->issue_unshard();
  }
}

void ModelContext::leave_forward(ParamGroup& group, std::uint64_t invocation,
                                 std::weak_ptr<const void> graph) {
  std::erase_if(forwards_, [](const Forward& forward) { return forward.graph.expired(); });
  forwards_.push_back({&group, invocation, num_forwards_, std::move(graph)});
}

bool ModelContext::is_last_of_forward(const ParamGroup& group) const {
  return in_forward_ && as_expected_ && entered_.size() == expected_.size() &&
         entered_.back() == &group;
}

void ModelContext::begin_backward() {
  if (!in_backward_) {
    check_no_scope("backward begins");
    in_backward_ = true;
    autograd::queue_callback([this] { finish_backward(); });
  }
}

void ModelContext::enter_backward(ParamGroup& group, std::uint64_t invocation) {
  if (group.prefetch().backward) {
    for (ParamGroup* const next : *group.prefetch().backward) {
      next->issue_unshard();
    }
    return;
  }
  const auto found = std::ranges::find_if(forwards_, [&](const Forward& forward) {
    return forward.group == &group && forward.invocation == invocation;
  });
  if (found != forwards_.end()) {
    prefetch_backward(group, static_cast<std::size_t>(std::distance(forwards_.begin(), found)));
  }
}

void ModelContext::prefetch_backward(const ParamGroup& group, std::size_t position) {
  const std::uint64_t pass = forwards_[position].pass;
  int ahead = 0;
  while (ahead < options_.prefetch && position-- > 0 && forwards_[position].pass == pass) {
    const Forward& next = forwards_[position];
    if (next.group != &group && !next.graph.expired() &&
        next.group->behavior().unshard_in_backward) {
      next.group->issue_unshard();
      ++ahead;
    }
  }
}

void ModelContext::begin_reduction(ParamGroup& group) {
  while (reducing_.size() >= kMaxReductions) {
    ParamGroup* const oldest = reducing_.front();
    reducing_.pop_front();
    oldest->finish_reductions();
  }
  reducing_.push_back(&group);
}

void ModelContext::finish_reductions() {
  for (ParamGroup* const group : std::exchange(reducing_, {})) {
    group->finish_reductions();
  }
}

void ModelContext::finish_backward() {
  for (ParamGroup* const group : groups_) {
    group->finish_backward();
  }
  in_backward_ = false;
  if (is_last_backward_) {
    for (ParamGroup* const group : groups_) {
      group->begin_replica_sums();
    }
    finish_reductions();
    for (ParamGroup* const group : groups_) {
      group->finish_gradients();
    }
    end_step();
  }
}

void ModelContext::end_step() {
  if (!in_forward_ && pool_.idle()) {
    pool_.end_step(step_is_typical_ && step_has_forward_);
    step_is_typical_ = true;
    step_has_forward_ = false;
  }
}

void ModelContext::reset() {
  in_backward_ = false;
  in_forward_ = false;
  reducing_.clear();
  forwards_.clear();
  step_is_typical_ = true;
  step_has_forward_ = false;
  pool_.abandon_step();
}

}  // namespace fsdptrain::shard
