#pragma once

#include <cstddef>
#include <optional>

#include "comm/work.h"
#include "runtime/tensor/tensor.h"
#include "shard/slot_plan.h"

// What a ParamGroup knows of what is under way.
namespace fsdptrain::shard {

// A whole buffer, of parameters or gradients.
struct WholeBuffer {
  Tensor values;
  // In the pool; none where it is not.
  std::optional<SlotUse> use;
};
// What a backward through a group with frozen parameters must still reach: their gradients do not
// tell that it is over.
struct WatchedInputs {
  std::size_t count = 0;
};
// An invocation whose backward has begun.
struct OpenBackward {
  bool is_reduced = false;
  std::size_t inputs_left = 0;
};
// Gradients under way.
struct Reducing {
  std::size_t buffer = 0;
  // Which reduction of the backward this is.
  std::size_t number = 0;
  WholeBuffer whole;
  // None where there is one rank.
  std::optional<comm::Work> work;
};

}  // namespace fsdptrain::shard
