#pragma once

#include <vector>

#include "runtime/nn/flat_chunk.h"

namespace fsdptrain::optim {

// An exponential moving average of trained parameters, which often does better than the last of
// them: average += (1 - decay) * (parameters - average) after each update. It begins as the
// parameters are. Kept in the chunks' dtype, on their device.
class WeightAverage {
 public:
  // ConfigError unless 0 <= decay < 1.
  WeightAverage(const std::vector<nn::FlatChunk>& chunks, double decay);

  // The same chunks every time.
  void update(const std::vector<nn::FlatChunk>& chunks);

  // Of the chunk of this number: as many elements, in the same places. Who loads an average writes
  // them.
  const Tensor& values(std::size_t chunk) const { return averages_[chunk]; }

 private:
  double decay_;
  std::vector<Tensor> averages_;
};

}  // namespace fsdptrain::optim
