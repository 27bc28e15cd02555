#include "runtime/optim/weight_average.h"

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/ops/inplace.h"

namespace fsdptrain::optim {

WeightAverage::WeightAverage(const std::vector<nn::FlatChunk>& chunks, double decay)
    : decay_(decay) {
  check<ConfigError>(decay >= 0 && decay < 1, "weight average: decay must be in [0, 1), got {}",
                     decay);
  const autograd::NoGradGuard no_grad;
  for (const nn::FlatChunk& chunk : chunks) {
    const Tensor& p = chunk.parameters;
    const Tensor values =
        Tensor::empty(p.shape(), p.dtype(), p.device(), MemoryCategory::Optimizer);
    ops::copy_(values, p);
    averages_.push_back(values);
  }
}

void WeightAverage::update(const std::vector<nn::FlatChunk>& chunks) {
  check<ShapeError>(chunks.size() == averages_.size(),
                    "weight average: there must be {} chunks, as at first, got {}",
                    averages_.size(), chunks.size());
  const autograd::NoGradGuard no_grad;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    ops::lerp_(averages_[i], chunks[i].parameters, 1 - decay_);
  }
}

}  // namespace fsdptrain::optim
