#include "tools/bench/step_parts.h"

#include <algorithm>
#include <iterator>

namespace fsdptrain::tools {
namespace {

struct Kernel {
  std::string_view name;
  std::string_view part;
};

// Sums are those of bias gradients.
constexpr Kernel kKernels[] = {
    {"attention", "attention"},
    {"attention_backward", "attention"},
    {"linear_cross_entropy", "head"},
    {"matmul", "linears"},
    {"elementwise", "elementwise"},
    {"copy", "elementwise"},
    {"accumulate", "elementwise"},
    {"fill", "elementwise"},
    {"dropout", "elementwise"},
    {"rotary", "elementwise"},
    {"sum", "elementwise"},
    {"layer_norm", "norm"},
    {"layer_norm_backward", "norm"},
    {"layer_norm_backward_weight", "norm"},
    {"rms_norm", "norm"},
    {"rms_norm_backward", "norm"},
    {"rms_norm_backward_weight", "norm"},
    {"adamw", "optimizer"},
    {"sgd", "optimizer"},
    {"add_sum_of_squares", "optimizer"},
    {"sqrt_of", "optimizer"},
    {"clip_factor", "optimizer"},
    {"embedding", "embedding"},
    {"embedding_backward", "embedding"},
};
constexpr std::string_view kParts[] = {"attention", "head",      "linears",  "elementwise",
                                       "norm",      "optimizer", "embedding"};

}  // namespace

std::string_view part_of(std::string_view kernel) {
  const auto* const found = std::ranges::find(kKernels, kernel, &Kernel::name);
  return found == std::end(kKernels) ? "other" : found->part;
}

std::vector<StepPart> step_parts(const KernelProfile& profile, double seconds) {
  std::vector<StepPart> parts;
  double rest = seconds;
  for (const std::string_view name : kParts) {
    StepPart part{name, 0};
    for (const auto& [kernel, entry] : profile.entries()) {
      if (part_of(kernel) == name) {
        part.seconds += entry.seconds;
      }
    }
    rest -= part.seconds;
    parts.push_back(part);
  }
  parts.push_back({"other", rest});
  return parts;
}

}  // namespace fsdptrain::tools
