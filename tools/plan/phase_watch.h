#pragma once

#include <string>
#include <vector>

#include "models/common/decoder.h"
#include "runtime/base/allocator.h"
#include "shard/sharded_model.h"

namespace fsdptrain::tools {

// A part of a step and the memory of it.
struct StepPhase {
  // "the forward of h.7"
  std::string name;
  // What was in use at its end, and the peaks within it.
  MemoryCounters memory;
};

// Notes which part of a step a rank is in, and the peaks of its memory in each: the forward and the
// backward of every unit, by hooks, and what begin() is told. Belongs to the thread of the rank;
// resets the peaks of the allocator; outlives the backward of graphs that it has seen.
class PhaseWatch {
 public:
  // Of units that exist already; `model` is what they are units of.
  PhaseWatch(models::Decoder& model, shard::ShardedModel& sharded, Allocator& allocator);
  PhaseWatch(const PhaseWatch&) = delete;
  PhaseWatch& operator=(const PhaseWatch&) = delete;
  ~PhaseWatch();

  // Ends the phase under way.
  void begin(std::string name);
  // All phases so far, parts of one name as one, in the order in which they began first. Begins
  // anew.
  std::vector<StepPhase> take();

 private:
  void watch(nn::Module& module, const std::string& name, bool is_first_block);
  void watch_root(nn::Module& module);
  // Called before the backward of what made the tensor.
  void at_backward_of(const Tensor& tensor, const std::string& name);
  void end();

  Allocator& allocator_;
  std::vector<nn::Module*> modules_;
  // Of the phase under way, and what was in use at its begin.
  std::string name_;
  std::int64_t live_ = 0;
  std::vector<StepPhase> phases_;
};

}  // namespace fsdptrain::tools
