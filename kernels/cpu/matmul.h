#pragma once

#include "kernels/cpu/gemm_tile.h"
#include "kernels/matmul.h"

namespace fsdptrain::kernels::cpu {

// False if the matrix library refused a tile.
template <Isa isa>
bool matmul(const Launch& launch, const View& out, const View& a, const View& b, double beta,
            const MatmulEpilogue& epilogue, const GemmTile& tile, void* scratch);

}  // namespace fsdptrain::kernels::cpu
