#include "runtime/base/isa.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/base/error.h"

namespace fsdptrain {

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::Baseline:
      return "baseline";
    case Isa::Avx2:
      return "avx2";
    case Isa::Avx512:
      return "avx512";
  }
  return "invalid isa";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas{Isa::Baseline};
#if defined(__x86_64__)
  // The compiler's functions also ask whether the operating system saves the registers.
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  if (avx2) {
    isas.push_back(Isa::Avx2);
  }
  if (avx2 && avx512) {
    isas.push_back(Isa::Avx512);
  }
#endif
  return isas;
}

Isa select_isa() {
  const std::vector<Isa> isas = supported_isas();
  const char* wanted = std::getenv("FSDPTRAIN_ISA");
  if (wanted == nullptr) {
    return isas.back();
  }
  const auto found = std::ranges::find_if(isas, [&](Isa isa) { return name_of(isa) == wanted; });
  std::string names;
  for (const Isa isa : isas) {
    names += (names.empty() ? "" : ", ");
    names += name_of(isa);
  }
  check<ConfigError>(found != isas.end(), "FSDPTRAIN_ISA: this CPU can run {}, got \"{}\"", names,
                     wanted);
  return *found;
}

}  // namespace fsdptrain
