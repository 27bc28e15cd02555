#pragma once

#include "runtime/base/view.h"

// Rows of a table by index. All operands dense; indices int64 or int32 and in range, which their
// caller has checked.
namespace fsdptrain::kernels {

// The table is [rows, width], with one index for every position.
struct EmbeddingShape {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t positions = 0;
};

// out[p, :] = table[indices[p], :]; floating, one dtype.
void embedding(const Launch& launch, const View& out, const View& table, const View& indices,
               const EmbeddingShape& shape);

// dtable[r, :] = sum of dy[p, :] over the positions p with index r, in order, added in dtable's
// op-math type and rounded once; 0 where there is none. Added to dtable if `accumulate`. dtable
// and dy may have different floating dtypes.
void embedding_backward(const Launch& launch, const View& dtable, const View& dy,
                        const View& indices, const EmbeddingShape& shape, bool accumulate);

}  // namespace fsdptrain::kernels
