#include "runtime/nn/dropout.h"

#include "runtime/ops/dropout.h"

namespace fsdptrain::nn {

Tensor Dropout::forward(const Tensor& x) {
  return training() ? ops::dropout(x, p_, {site_}) : x;
}

}  // namespace fsdptrain::nn
