#pragma once

#include <string>
#include <vector>

#include "runtime/nn/flat_chunk.h"

namespace fsdptrain::optim {

// A state tensor that a checkpoint must save: as long as the chunk's parameters, element by
// element.
struct State {
  std::string name;  // "exp_avg", "exp_avg_sq", "momentum"
  std::size_t chunk = 0;
  Tensor values;
};

// Updates flat chunks in place, one kernel per chunk. ShapeError, DTypeError or DeviceError for
// chunks that do not fit each other or the optimizer (chunk_checks.h), before anything is written.
class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  // One step with the chunks' gradients times `gradient_scale` (a float64 tensor of one element
  // on the chunks' device, from clip_factor(); undefined: 1). The same chunks every time; their
  // active segments count the step. The caller bumps the epoch of the parameters' owner.
  virtual void step(std::vector<nn::FlatChunk>& chunks, double lr,
                    const Tensor& gradient_scale) = 0;

  virtual std::vector<State> states() const = 0;
};

// The square root of the sum of squares of all active gradients, in blocks of fixed size
// that are added in order: float64, one element, on the chunks' device.
Tensor gradient_norm(const std::vector<nn::FlatChunk>& chunks);

// min(1, max_norm / (norm + 1e-6)), NaN for a norm of NaN, on the device of `norm`.
Tensor clip_factor(const Tensor& norm, double max_norm);

}  // namespace fsdptrain::optim
