#pragma once

#include "runtime/base/view.h"

// Reductions of a dense array over its middle dimension. Sums run over blocks of fixed size, each
// in fixed lanes, and blocks are combined in a fixed tree: the bits follow from the shape and the
// ISA variant alone.
namespace fsdptrain::kernels {

// An array seen as [outer, reduced, inner]; results are [outer, inner].
struct ReduceShape {
  std::int64_t outer = 1;
  std::int64_t reduced = 1;
  std::int64_t inner = 1;
};

struct SumOptions {
  // out = sum / divisor, before rounding; floating dtypes only.
  std::int64_t divisor = 1;
  // out += sum / divisor
  bool accumulate = false;
};

// out[o, i] = sum over r of in[o, r, i]; in and out dense. Floating: added in the op-math type of
// `in`, out may be another floating dtype. Integers: out has in's dtype and wraps modulo 2^n.
void sum(const Launch& launch, const View& out, const View& in, const ReduceShape& shape,
         const SumOptions& options = {});

// The largest of at least one element: NaN propagates, -0 < +0. in and out dense, of one dtype.
void max(const Launch& launch, const View& out, const View& in, const ReduceShape& shape);

// The first position of the largest element (the first NaN, where there is one) as int64.
void argmax(const Launch& launch, const View& out, const View& in, const ReduceShape& shape);

}  // namespace fsdptrain::kernels
