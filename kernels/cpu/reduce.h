#pragma once

#include "kernels/reduce.h"

namespace fsdptrain::kernels {

// How sums are cut: rows of one column into pieces of `kSumBlock` elements, rows of several into
// blocks of `kSumRows`.
inline constexpr std::int64_t kSumBlock = 4096;
inline constexpr std::int64_t kSumRows = 128;

// The workspace of a sum cut into blocks of `block` rows: one partial sum of at most 8 bytes per
// block and result; none where one block is all.
Allocation allocate_partials(const Launch& launch, const ReduceShape& shape, std::int64_t block);

namespace cpu {

template <Isa isa>
void sum(const Launch& launch, const View& out, const View& in, const ReduceShape& shape,
         const SumOptions& options, void* partials);
template <Isa isa>
void max(const Launch& launch, const View& out, const View& in, const ReduceShape& shape);
template <Isa isa>
void argmax(const Launch& launch, const View& out, const View& in, const ReduceShape& shape);

}  // namespace cpu
}  // namespace fsdptrain::kernels
