#include "runtime/base/dtype.h"

#include "runtime/base/error.h"

namespace fsdptrain {

std::size_t size_of(DType dtype) {
  return dispatch_any(dtype, []<class T>() { return sizeof(T); });
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return "float32";
    case DType::Float64:
      return "float64";
    case DType::BFloat16:
      return "bfloat16";
    case DType::Float16:
      return "float16";
    case DType::Int64:
      return "int64";
    case DType::Int32:
      return "int32";
    case DType::UInt16:
      return "uint16";
    case DType::UInt8:
      return "uint8";
  }
  return "invalid dtype";
}

bool is_floating(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::BFloat16 ||
         dtype == DType::Float16;
}

void detail::fail_not_floating(DType dtype) {
  fail<DTypeError>("expected float32, float64 or bfloat16, got {}", dtype);
}

}  // namespace fsdptrain

fmt::format_context::iterator fmt::formatter<fsdptrain::DType>::format(
    fsdptrain::DType dtype, format_context& context) const {
  return fmt::format_to(context.out(), "{}", fsdptrain::name_of(dtype));
}
