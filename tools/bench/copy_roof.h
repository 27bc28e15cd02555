#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace fsdptrain::tools {

// The roof of what moves memory: memcpy on all threads of the bound rank context, between two
// buffers of its own.
class CopyRoof {
 public:
  // Copies that read and write `bytes` in all.
  explicit CopyRoof(double bytes);

  double bytes() const;
  void run();

 private:
  Tensor from_;
  Tensor to_;
};

}  // namespace fsdptrain::tools
