#pragma once

#include <optional>
#include <string>
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

  // The average of the parameter of this name, as a window of this shape; nothing for one that no
  // chunk holds, which is not trained.
  std::optional<Tensor> find(const std::string& name, const Shape& shape) const;

 private:
  // A chunk's parameters as they are averaged, and where they lie in it.
  struct Average {
    Tensor values;
    std::vector<nn::Segment> segments;
  };

  double decay_;
  std::vector<Average> averages_;
};

}  // namespace fsdptrain::optim
