#include "kernels/copy.h"

#include "kernels/cpu/copy.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void copy(const Launch& launch, const View& out, const View& in) {
  run_on(launch, "copy", [&]<Isa isa>() { cpu::copy<isa>(launch, out, in); });
}

void accumulate(const Launch& launch, const View& out, const View& in) {
  run_on(launch, "accumulate", [&]<Isa isa>() { cpu::accumulate<isa>(launch, out, in); });
}

void fill(const Launch& launch, const View& out, double value) {
  run_on(launch, "fill", [&]<Isa isa>() { cpu::fill<isa>(launch, out, value); });
}

}  // namespace fsdptrain::kernels
