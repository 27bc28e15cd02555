#include "kernels/copy.h"

#include "kernels/cpu/copy.h"
#include "kernels/cuda/copy.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void copy(const Launch& launch, const View& out, const View& in) {
  run_native(
      launch, "copy", [&]<Isa isa>() { cpu::copy<isa>(launch, out, in); },
      [&] { cuda::copy(launch.stream, out, in); });
}

void accumulate(const Launch& launch, const View& out, const View& in) {
  run_native(
      launch, "accumulate", [&]<Isa isa>() { cpu::accumulate<isa>(launch, out, in); },
      [&] { cuda::accumulate(launch.stream, out, in); });
}

void fill(const Launch& launch, const View& out, double value) {
  run_native(
      launch, "fill", [&]<Isa isa>() { cpu::fill<isa>(launch, out, value); },
      [&] { cuda::fill(launch.stream, out, value); });
}

}  // namespace fsdptrain::kernels
