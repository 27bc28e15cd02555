#include "runtime/autograd/parameter_owner.h"

#include <algorithm>

#include "runtime/autograd/region.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::autograd {

void ParameterOwner::begin_invocation() {
  open_.push_back(++last_invocation_);
  current_context().autograd.open_owners.push_back(this);
  note_owner(*this);
}

void ParameterOwner::end_invocation() {
  open_.pop_back();
  auto& owners = current_context().autograd.open_owners;
  const auto innermost = std::ranges::find(owners.rbegin(), owners.rend(), this);
  if (innermost != owners.rend()) {
    owners.erase(std::next(innermost).base());
  }
}

}  // namespace fsdptrain::autograd
