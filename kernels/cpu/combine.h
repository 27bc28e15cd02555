#pragma once

#include "kernels/combine.h"

namespace fsdptrain::kernels::cpu {

// Parts without the inline code of std::span.
struct PartArrays {
  const void* const* data = nullptr;
  int count = 0;
  DType dtype = DType::Float32;
  std::int64_t numel = 0;
};

template <Isa isa>
void combine(const Launch& launch, const CombineOut& out, const PartArrays& parts,
             const CombineOptions& options);

}  // namespace fsdptrain::kernels::cpu
