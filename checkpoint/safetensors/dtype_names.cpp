#include "checkpoint/safetensors/dtype_names.h"

#include <array>

namespace fsdptrain::checkpoint {
namespace {

constexpr std::array kDTypes = {DType::Float64, DType::Float32, DType::BFloat16, DType::Float16,
                                DType::Int64,   DType::Int32,   DType::UInt16,   DType::UInt8};

}  // namespace

std::string_view safetensors_name_of(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return "F32";
    case DType::Float64:
      return "F64";
    case DType::BFloat16:
      return "BF16";
    case DType::Float16:
      return "F16";
    case DType::Int64:
      return "I64";
    case DType::Int32:
      return "I32";
    case DType::UInt16:
      return "U16";
    case DType::UInt8:
      return "U8";
  }
  return "invalid dtype";
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (safetensors_name_of(dtype) == name) {
      return dtype;
    }
  }
  return std::nullopt;
}

}  // namespace fsdptrain::checkpoint
