#include "kernels/cuda/segment_table.cuh"
#include "kernels/cuda/segments.h"
#include "runtime/base/dtype.h"

namespace fsdptrain::kernels::cuda {
namespace {

// Zero is zero bytes in every dtype: T is any type of its size.
template <class T>
__global__ void zero_kernel(const __grid_constant__ SegmentTable<Range> table, T* out) {
  const std::int64_t index = thread_index();
  if (index < table.first[table.count]) {
    out[find_place(table, index).element] = 0;
  }
}

template <class T>
void zero_typed(void* stream, const View& out, const Range* segments, std::int64_t num_segments) {
  for_each_table(segments, num_segments, [&](const SegmentTable<Range>& table) {
    launch("zero_segments", zero_kernel<T>, table.first[table.count], kElementThreads, stream,
           table, static_cast<T*>(out.data));
  });
}

}  // namespace

void zero_segments(void* stream, const View& out, const Range* segments,
                   std::int64_t num_segments) {
  dispatch_any(out.dtype, [&]<class T>() {
    if constexpr (sizeof(T) == 8) {
      zero_typed<std::uint64_t>(stream, out, segments, num_segments);
    } else if constexpr (sizeof(T) == 4) {
      zero_typed<std::uint32_t>(stream, out, segments, num_segments);
    } else if constexpr (sizeof(T) == 2) {
      zero_typed<std::uint16_t>(stream, out, segments, num_segments);
    } else {
      zero_typed<std::uint8_t>(stream, out, segments, num_segments);
    }
  });
}

}  // namespace fsdptrain::kernels::cuda
