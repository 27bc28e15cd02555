#include "runtime/optim/sgd.h"

#include "kernels/optimizer.h"
#include "runtime/optim/chunk_checks.h"

namespace fsdptrain::optim {

Sgd::Sgd(const std::vector<nn::FlatChunk>& chunks, const Options& options)
    : options_(options), num_chunks_(chunks.size()) {
  check_chunks("sgd", chunks);
  if (options.momentum == 0) {
    return;
  }
  for (const nn::FlatChunk& chunk : chunks) {
    const Tensor& p = chunk.parameters;
    momentum_.push_back(Tensor::zeros(p.shape(), p.dtype(), p.device(), MemoryCategory::Optimizer));
  }
}

void Sgd::step(std::vector<nn::FlatChunk>& chunks, double lr, const Tensor& gradient_scale) {
  check_step("sgd", chunks, num_chunks_, gradient_scale);
  const View scale = gradient_scale.defined() ? gradient_scale.view() : View{};
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    nn::FlatChunk& chunk = chunks[i];
    std::vector<kernels::SgdSegment> updates;
    for (nn::Segment& segment : chunk.segments) {
      if (segment.active) {
        ++segment.step;
        updates.push_back({segment.begin, segment.end, lr * segment.lr_scale,
                           segment.decay ? options_.weight_decay : 0});
      }
    }
    const View buffer = momentum_.empty() ? View{} : momentum_[i].view();
    kernels::sgd(chunk.parameters.launch(), chunk.parameters.view(), chunk.gradients.view(),
                 momentum_.empty() ? nullptr : &buffer, options_.momentum, updates,
                 gradient_scale.defined() ? &scale : nullptr);
  }
}

std::vector<State> Sgd::states() const {
  std::vector<State> states;
  for (std::size_t i = 0; i < momentum_.size(); ++i) {
    states.push_back({"momentum", i, momentum_[i]});
  }
  return states;
}

}  // namespace fsdptrain::optim
