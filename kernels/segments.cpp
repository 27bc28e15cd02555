#include "kernels/segments.h"

#include "kernels/cpu/segments.h"
#include "kernels/cuda/segments.h"
#include "kernels/dispatch.h"

namespace fsdptrain::kernels {

void zero_segments(const Launch& launch, const View& out, std::span<const Range> segments) {
  const Range* const first = segments.data();
  const auto count = static_cast<std::int64_t>(segments.size());
  run_native(
      launch, "zero_segments",
      [&]<Isa isa>() { cpu::zero_segments<isa>(launch, out, first, count); },
      [&] { cuda::zero_segments(launch.stream, out, first, count); });
}

}  // namespace fsdptrain::kernels
