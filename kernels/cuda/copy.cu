#include "kernels/cuda/copy.h"
#include "kernels/cuda/strided_place.cuh"
#include "kernels/functors/convert.h"
#include "runtime/base/dtype.h"

namespace fsdptrain::kernels::cuda {
namespace {

// One thread, one element.
template <class To, class From>
__global__ void copy_kernel(StridedLoop<2> loop, To* out, const From* in) {
  const std::int64_t index = thread_index();
  if (index < num_elements(loop)) {
    std::int64_t offsets[2];
    find_offsets(offsets, loop, index);
    out[offsets[0]] = convert<To>(in[offsets[1]]);
  }
}

template <class To, class From>
__global__ void accumulate_kernel(StridedLoop<2> loop, To* out, const From* in) {
  const std::int64_t index = thread_index();
  if (index < num_elements(loop)) {
    std::int64_t offsets[2];
    find_offsets(offsets, loop, index);
    out[offsets[0]] = add(out[offsets[0]], in[offsets[1]]);
  }
}

template <class To>
__global__ void fill_kernel(StridedLoop<1> loop, To* out, To value) {
  const std::int64_t index = thread_index();
  if (index < num_elements(loop)) {
    std::int64_t offsets[1];
    find_offsets(offsets, loop, index);
    out[offsets[0]] = value;
  }
}

}  // namespace

void copy(void* stream, const View& out, const View& in) {
  const auto loop = make_loop<2>({&out, &in});
  dispatch_any(out.dtype, [&]<class To>() {
    dispatch_any(in.dtype, [&]<class From>() {
      launch("copy", copy_kernel<To, From>, num_elements(loop), kElementThreads, stream, loop,
             static_cast<To*>(out.data), static_cast<const From*>(in.data));
    });
  });
}

void accumulate(void* stream, const View& out, const View& in) {
  const auto loop = make_loop<2>({&out, &in});
  dispatch_floating(out.dtype, [&]<class To>() {
    dispatch_floating(in.dtype, [&]<class From>() {
      launch("accumulate", accumulate_kernel<To, From>, num_elements(loop), kElementThreads, stream,
             loop, static_cast<To*>(out.data), static_cast<const From*>(in.data));
    });
  });
}

void fill(void* stream, const View& out, double value) {
  const auto loop = make_loop<1>({&out});
  dispatch_any(out.dtype, [&]<class To>() {
    launch("fill", fill_kernel<To>, num_elements(loop), kElementThreads, stream, loop,
           static_cast<To*>(out.data), convert<To>(value));
  });
}

}  // namespace fsdptrain::kernels::cuda
