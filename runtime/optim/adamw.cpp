#include "runtime/optim/adamw.h"

#include <cmath>

#include "kernels/optimizer.h"
#include "runtime/base/error.h"
#include "runtime/optim/chunk_checks.h"

namespace fsdptrain::optim {

AdamW::AdamW(const std::vector<nn::FlatChunk>& chunks, const Options& options) : options_(options) {
  check_chunks("adamw", chunks);
  check<ConfigError>(
      options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1 &&
          options.eps >= 0,
      "adamw: beta1 and beta2 must be in [0, 1) and eps not negative, got {}, {}, {}",
      options.beta1, options.beta2, options.eps);
  for (const nn::FlatChunk& chunk : chunks) {
    const Tensor& p = chunk.parameters;
    exp_avg_.push_back(Tensor::zeros(p.shape(), p.dtype(), p.device(), MemoryCategory::Optimizer));
    exp_avg_sq_.push_back(
        Tensor::zeros(p.shape(), p.dtype(), p.device(), MemoryCategory::Optimizer));
  }
}

void AdamW::step(std::vector<nn::FlatChunk>& chunks, double lr, const Tensor& gradient_scale) {
  check_step("adamw", chunks, exp_avg_.size(), gradient_scale);
  const View scale = gradient_scale.defined() ? gradient_scale.view() : View{};
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    nn::FlatChunk& chunk = chunks[i];
    std::vector<kernels::AdamwSegment> updates;
    for (nn::Segment& segment : chunk.segments) {
      if (!segment.active) {
        continue;
      }
      const auto t = static_cast<double>(++segment.step);
      const double rate = lr * segment.lr_scale;
      updates.push_back({segment.begin, segment.end,
                         segment.decay ? 1 - rate * options_.weight_decay : 1,
                         rate / (1 - std::pow(options_.beta1, t)),
                         1 / std::sqrt(1 - std::pow(options_.beta2, t))});
    }
    kernels::adamw(chunk.parameters.launch(), chunk.parameters.view(), chunk.gradients.view(),
                   exp_avg_[i].view(), exp_avg_sq_[i].view(), updates,
                   {options_.beta1, options_.beta2, options_.eps},
                   gradient_scale.defined() ? &scale : nullptr);
  }
}

std::vector<State> AdamW::states() const {
  std::vector<State> states;
  for (std::size_t i = 0; i < exp_avg_.size(); ++i) {
    states.push_back({"exp_avg", i, exp_avg_[i]});
    states.push_back({"exp_avg_sq", i, exp_avg_sq_[i]});
  }
  return states;
}

}  // namespace fsdptrain::optim
