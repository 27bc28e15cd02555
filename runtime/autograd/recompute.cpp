#include "runtime/autograd/recompute.h"

#include <memory>
#include <utility>

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/region.h"

namespace fsdptrain::autograd {

std::vector<Tensor> recomputed(const std::vector<Tensor>& inputs, RegionBody body,
                               RecomputeOptions options) {
  if (!grad_enabled()) {
    return body(inputs);
  }
  return std::make_shared<Region>(inputs, std::move(body), std::move(options))->run(inputs);
}

bool replaying() {
  const RegionFrame* const frame = current_context().autograd.region;
  return frame != nullptr && frame->mode != RegionMode::Record;
}

bool in_region() {
  return current_context().autograd.region != nullptr;
}

std::vector<Tensor> keep_or_run(std::string_view op,
                                const std::function<std::vector<Tensor>()>& compute) {
  RegionFrame* const frame = current_context().autograd.region;
  for (const RegionFrame* around = frame; around != nullptr; around = around->outer) {
    around->region.note_op(op);
  }
  if (frame == nullptr || !frame->region.keeps(op)) {
    return compute();
  }
  if (frame->mode == RegionMode::Replay) {
    return frame->region.hand_back(op);
  }
  std::vector<Tensor> outputs = compute();
  frame->region.keep(*frame, op, outputs);
  return outputs;
}

}  // namespace fsdptrain::autograd
