#pragma once

#include "runtime/tensor/tensor.h"

namespace fsdptrain::tools {

// What no communication through memory can save: memcpy between two buffers of a rank, its threads
// sharing them.
class RankCopy {
 public:
  explicit RankCopy(std::int64_t nbytes);

  // The seconds of one copy.
  double run();

 private:
  Tensor from_;
  Tensor to_;
};

}  // namespace fsdptrain::tools
