#pragma once

#include <cstddef>
#include <cstdint>
#include <fmt/core.h>
#include <string_view>

#include "runtime/base/half.h"

namespace fsdptrain {

// The element type of a tensor. These values never leave the process: files name dtypes by text.
enum class DType : std::uint8_t {
  Float32,
  Float64,
  BFloat16,
  Float16,  // storage and casts only
  Int64,
  Int32,
  UInt16,
  UInt8,
};

std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);
bool is_floating(DType dtype);

// The DType of a C++ element type; no DType, so that it does not compile, for any other type.
template <class T>
inline constexpr std::nullptr_t kDTypeOf = nullptr;
template <>
inline constexpr DType kDTypeOf<float> = DType::Float32;
template <>
inline constexpr DType kDTypeOf<double> = DType::Float64;
template <>
inline constexpr DType kDTypeOf<bfloat16> = DType::BFloat16;
template <>
inline constexpr DType kDTypeOf<float16> = DType::Float16;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::Int64;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::Int32;
template <>
inline constexpr DType kDTypeOf<std::uint16_t> = DType::UInt16;
template <>
inline constexpr DType kDTypeOf<std::uint8_t> = DType::UInt8;

// Calls `fn.template operator()<T>()` with the C++ type of `dtype`. This switch and the one
// below are the only two over dtypes: ops check what they support before they get here.
template <class Fn>
[[gnu::always_inline]] inline decltype(auto) dispatch_any(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::Float32:
      return fn.template operator()<float>();
    case DType::Float64:
      return fn.template operator()<double>();
    case DType::BFloat16:
      return fn.template operator()<bfloat16>();
    case DType::Float16:
      return fn.template operator()<float16>();
    case DType::Int64:
      return fn.template operator()<std::int64_t>();
    case DType::Int32:
      return fn.template operator()<std::int32_t>();
    case DType::UInt16:
      return fn.template operator()<std::uint16_t>();
    case DType::UInt8:
      return fn.template operator()<std::uint8_t>();
  }
  __builtin_unreachable();
}

namespace detail {
// Out of line, so that kernel units carry no inline code of this file.
[[noreturn]] void fail_not_floating(DType dtype);
}  // namespace detail

// The same for the dtypes that floating ops compute with: float32, float64, bfloat16.
template <class Fn>
[[gnu::always_inline]] inline decltype(auto) dispatch_floating(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::Float32:
      return fn.template operator()<float>();
    case DType::Float64:
      return fn.template operator()<double>();
    case DType::BFloat16:
      return fn.template operator()<bfloat16>();
    case DType::Float16:
    case DType::Int64:
    case DType::Int32:
    case DType::UInt16:
    case DType::UInt8:
      break;
  }
  detail::fail_not_floating(dtype);
}

}  // namespace fsdptrain

template <>
struct fmt::formatter<fsdptrain::DType> {
  constexpr auto parse(format_parse_context& context) const { return context.begin(); }
  format_context::iterator format(fsdptrain::DType dtype, format_context& context) const;
};
