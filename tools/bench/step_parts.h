#pragma once

#include <string_view>
#include <vector>

#include "runtime/base/kernel_profile.h"

namespace fsdptrain::tools {

// A part of a training step and its seconds.
struct StepPart {
  std::string_view name;
  double seconds = 0;
};

// The part that a kernel, or an op with a scope of its own, belongs to; "other" for unknown ones.
std::string_view part_of(std::string_view kernel);

// The parts in the order in which they are reported: attention, head, linears, elementwise, norm,
// optimizer, embedding, and other, which is what of `seconds` no kernel accounts for and kernels
// of no part.
std::vector<StepPart> step_parts(const KernelProfile& profile, double seconds);

}  // namespace fsdptrain::tools
