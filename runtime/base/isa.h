#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

// The instruction set variants of the CPU kernels: what any x86-64 has; AVX2 with FMA; and with
// AVX-512 F, BW, DQ and VL. Results are equal bit for bit within one variant only.
namespace fsdptrain {

// Ordered: a CPU that has one has all before it.
enum class Isa : std::uint8_t { Baseline, Avx2, Avx512 };

std::string_view name_of(Isa isa);

// The variants that this CPU can run, lowest first.
std::vector<Isa> supported_isas();

// The best supported variant, or the one FSDPTRAIN_ISA names (baseline, avx2, avx512);
// ConfigError if that name is unknown or this CPU lacks the instructions.
Isa select_isa();

// Calls `fn.template operator()<isa>()`: the one switch over variants.
template <class Fn>
decltype(auto) dispatch_isa(Isa isa, Fn&& fn) {
  switch (isa) {
    case Isa::Baseline:
      return fn.template operator()<Isa::Baseline>();
    case Isa::Avx2:
      return fn.template operator()<Isa::Avx2>();
    case Isa::Avx512:
      return fn.template operator()<Isa::Avx512>();
  }
  __builtin_unreachable();
}

}  // namespace fsdptrain
