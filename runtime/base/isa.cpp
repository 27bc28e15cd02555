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
  }
  return "invalid isa";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas{Isa::Baseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    isas.push_back(Isa::Avx2);
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
