#pragma once

#include "runtime/base/view.h"

// Softmax of every row of a dense [rows, width], and its logarithm; floating, one dtype.
namespace fsdptrain::kernels {

struct SoftmaxShape {
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

enum class SoftmaxForm {
  Probability,  // exp(x) / sum(exp(x))
  Log,          // x - log(sum(exp(x)))
};

// A row that is all -infinity, or has NaN or +infinity, becomes NaN.
void softmax(const Launch& launch, const View& y, const View& x, const SoftmaxShape& shape,
             SoftmaxForm form);

// By the result y: y * (dy - sum(dy * y)), or dy - exp(y) * sum(dy) for the logarithm.
void softmax_backward(const Launch& launch, const View& dx, const View& dy, const View& y,
                      const SoftmaxShape& shape, SoftmaxForm form);

}  // namespace fsdptrain::kernels
