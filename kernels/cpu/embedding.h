#pragma once

#include "kernels/embedding.h"

namespace fsdptrain::kernels::cpu {

template <Isa isa>
void embedding(const Launch& launch, const View& out, const View& table, const View& indices,
               const EmbeddingShape& shape);
template <Isa isa>
void embedding_backward(const Launch& launch, const View& dtable, const View& dy,
                        const View& indices, const EmbeddingShape& shape, bool accumulate,
                        void* order);

}  // namespace fsdptrain::kernels::cpu
