#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace fsdptrain::nn {

// A parameter's place in a flat buffer and how an optimizer treats it.
struct Segment {
  std::string name;
  std::int64_t begin = 0;  // elements
  std::int64_t end = 0;
  double lr_scale = 1;
  bool decay = true;
  // Whether this step has a gradient for it; the optimizer skips the others.
  bool active = true;
  // Updates so far.
  std::int64_t step = 0;
};

// What an optimizer updates: flat parameters and their gradients, one dtype, contiguous, equal in
// length. Elements between segments are zero and stay so.
struct FlatChunk {
  Tensor parameters;
  Tensor gradients;
  std::vector<Segment> segments;
};

}  // namespace fsdptrain::nn
