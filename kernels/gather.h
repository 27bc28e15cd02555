#pragma once

#include "runtime/base/view.h"

// Picks along one dimension by an index for every result. All operands dense; indices int64 or
// int32 and in range, which their caller has checked.
namespace fsdptrain::kernels {

// Picks are [outer, picks, inner] of an array [outer, size, inner].
struct GatherShape {
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t picks = 1;
  std::int64_t inner = 1;
};

// out[o, p, i] = in[o, indices[o, p, i], i]
void gather(const Launch& launch, const View& out, const View& in, const View& indices,
            const GatherShape& shape);

// out[o, indices[o, p, i], i] += in[o, p, i], in the order of p; floating dtypes, added in the
// op-math type and rounded to out's dtype each time.
void scatter_add(const Launch& launch, const View& out, const View& indices, const View& in,
                 const GatherShape& shape);

}  // namespace fsdptrain::kernels
