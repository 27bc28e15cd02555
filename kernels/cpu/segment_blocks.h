#pragma once

#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/parallel.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// update(segment, begin, end) over all segments in blocks, in one parallel region.
template <class Segment, class Update>
FSDPTRAIN_HOST_DEVICE void for_segments(const Launch& launch, const Segment* segments,
                                        std::int64_t num_segments, const Update& update) {
  std::int64_t blocks = 0;
  for (std::int64_t s = 0; s < num_segments; ++s) {
    blocks += cpu::optimizer_blocks(segments[s].end - segments[s].begin);
  }
  parallel_for(launch, blocks, [&](std::int64_t block) {
    // Segments are few and blocks large: a scan costs nothing beside a block.
    std::int64_t s = 0;
    while (block >= cpu::optimizer_blocks(segments[s].end - segments[s].begin)) {
      block -= cpu::optimizer_blocks(segments[s].end - segments[s].begin);
      ++s;
    }
    const std::int64_t begin = segments[s].begin + block * cpu::kOptimizerBlock;
    update(segments[s], begin, min(segments[s].end, begin + cpu::kOptimizerBlock));
  });
}

}  // namespace FSDPTRAIN_VARIANT
}  // namespace fsdptrain::kernels
