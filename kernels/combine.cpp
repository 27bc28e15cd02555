#include "kernels/combine.h"

#include "kernels/cpu/combine.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {
namespace {

DType op_math(DType dtype) {
  const bool narrow = dtype == DType::BFloat16 || dtype == DType::Float16;
  return narrow ? DType::Float32 : dtype;
}

bool go_together(DType out, DType parts) {
  return out == parts || out == op_math(parts) || op_math(out) == parts;
}

void check_options(const Parts& parts, const CombineOptions& options) {
  if (options.factor == 1 && options.scale == 1) {
    return;
  }
  check<DTypeError>(is_floating(parts.dtype),
                    "combine: factor and scale are for floating dtypes, got factor {} and scale {} "
                    "for {}; sum first, then divide",
                    options.factor, options.scale, parts.dtype);
  check(options.op == CombineOp::Sum,
        "combine: factor and scale are for sums, got factor {} and scale {} for {}", options.factor,
        options.scale, name_of(options.op));
}

bool overlap(const void* a, std::uintptr_t a_bytes, const void* b, std::uintptr_t b_bytes) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes;
}

void check_memory(const CombineOut& out, const Parts& parts) {
  check<StorageError>(out.data != nullptr, "combine: out of {} elements has no memory",
                      parts.numel);
  const auto numel = static_cast<std::uintptr_t>(parts.numel);
  for (std::size_t i = 0; i < parts.data.size(); ++i) {
    const void* part = parts.data[i];
    check<StorageError>(part != nullptr, "combine: part {} of {} elements has no memory", i,
                        parts.numel);
    check(
        (part == out.data && parts.dtype == out.dtype) ||
            !overlap(out.data, numel * size_of(out.dtype), part, numel * size_of(parts.dtype)),
        "combine: out must be part {} in the same dtype or not overlap it, got out of {} {} bytes "
        "behind the part of {}, {} elements each",
        i, out.dtype, static_cast<const std::byte*>(out.data) - static_cast<const std::byte*>(part),
        parts.dtype, parts.numel);
  }
}

}  // namespace

std::string_view name_of(CombineOp op) {
  switch (op) {
    case CombineOp::Sum:
      return "sum";
    case CombineOp::Min:
      return "min";
    case CombineOp::Max:
      return "max";
  }
  fail("name_of: {} is no CombineOp", static_cast<int>(op));
}

void combine(const Launch& launch, const CombineOut& out, const Parts& parts,
             const CombineOptions& options) {
  const auto count = static_cast<std::int64_t>(parts.data.size());
  check<ShapeError>(count >= 1 && count <= kMaxParts,
                    "combine: the number of parts must be in [1, {}], got {}", kMaxParts, count);
  check<ShapeError>(parts.numel >= 0, "combine: parts need a length, got {}", parts.numel);
  check<DTypeError>(go_together(out.dtype, parts.dtype),
                    "combine: out must have the dtype of the parts or that of their sums, {}, or "
                    "round float32 parts to a 16-bit float, got {} for parts of {}",
                    op_math(parts.dtype), out.dtype, parts.dtype);
  check_options(parts, options);
  if (launch.device.type == DeviceType::Cpu && parts.numel > 0) {
    check_memory(out, parts);
  }
  const cpu::PartArrays arrays{parts.data.data(), static_cast<int>(count), parts.dtype,
                               parts.numel};
  run_on_host(launch, "combine",
              [&]<Isa isa>() { cpu::combine<isa>(launch, out, arrays, options); });
}

}  // namespace fsdptrain::kernels
