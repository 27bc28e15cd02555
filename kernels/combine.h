#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/view.h"

// Arrays combined element by element: what a reduction over ranks, or over micro-batches, does
// where all of its parts can be read. The order is a function of the number of parts alone, so
// the bits follow from that number and the ISA variant.
namespace fsdptrain::kernels {

enum class CombineOp : std::uint8_t { Sum, Min, Max };

std::string_view name_of(CombineOp op);

inline constexpr std::int64_t kMaxParts = 1024;

// Dense arrays of one dtype and length, which lie anywhere, aligned to their elements.
struct Parts {
  std::span<const void* const> data;  // 1 to kMaxParts addresses
  DType dtype = DType::Float32;
  std::int64_t numel = 0;  // of each
};

// As dense and as long as the parts.
struct CombineOut {
  void* data = nullptr;
  DType dtype = DType::Float32;
};

struct CombineOptions {
  CombineOp op = CombineOp::Sum;
  // sum over the parts of factor * part, each product rounded; sums of floating dtypes only.
  double factor = 1;
  // out = scale * sum, before the rounding to out's dtype; an average has 1/n. Sums of floating
  // dtypes only.
  double scale = 1;
};

// out[i] = the sum, the smallest or the largest of parts[0][i], parts[1][i], ...
//
// A sum is the binary tree over the index of the parts that splits at the largest power of two
// below their number (functors/binary_counter.h). Floating dtypes are added in their op-math type
// (float64 in float64, else float32), in which `factor` and `scale` are too, and rounded once, at
// the end. Integers wrap modulo 2^n. Which of several NaNs a sum gives on is not fixed. The
// smallest and the largest pass NaN on, and -0 < +0.
//
// out has the dtype of the parts or their op-math type, or the parts are float32 and out is a
// 16-bit float: partial sums of a tree can be combined without a rounding in between. out may be
// one of the parts if its dtype is theirs, and overlaps none otherwise.
//
// All of it is memory of the host: DeviceError on CUDA.
//
// ShapeError for too few or too many parts or a negative length; DTypeError for dtypes that do not
// go together, and for a factor or scale of integers; StorageError for a null address; Error for
// a factor or scale of Min or Max, and for an overlap.
void combine(const Launch& launch, const CombineOut& out, const Parts& parts,
             const CombineOptions& options = {});

}  // namespace fsdptrain::kernels
