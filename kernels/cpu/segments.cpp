#include "kernels/cpu/segments.h"

#include "kernels/cpu/segment_blocks.h"

namespace fsdptrain::kernels {

template <>
void cpu::zero_segments<kIsa>(const Launch& launch, const View& out, const Range* segments,
                              std::int64_t num_segments) {
  dispatch_any(out.dtype, [&]<class T>() {
    for_segments(launch, segments, num_segments,
                 [&](const Range&, std::int64_t begin, std::int64_t end) {
                   // Zero is zero bytes in every dtype.
                   __builtin_memset(static_cast<T*>(out.data) + begin, 0,
                                    static_cast<std::size_t>(end - begin) * sizeof(T));
                 });
  });
}

}  // namespace fsdptrain::kernels
