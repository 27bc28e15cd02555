#pragma once

#include <utility>

#include "kernels/cuda/strided_place.cuh"
#include "kernels/cuda/tag_name.h"
#include "kernels/elementwise.h"
#include "kernels/functors/element.h"

// The CUDA loop behind map(): included by the .cu file of each family, which instantiates it once
// per tag. One thread computes one element.
namespace fsdptrain::kernels::cuda {

template <int inputs>
struct Pointers {
  const void* data[inputs];
};

template <class T, class F, std::size_t... k>
__global__ void map_kernel(F f, StridedLoop<sizeof...(k) + 1> loop, void* out,
                           Pointers<sizeof...(k)> inputs, std::index_sequence<k...>) {
  constexpr int kOperands = static_cast<int>(sizeof...(k)) + 1;
  using Out = typename F::template Out<T>;
  const std::int64_t index = thread_index();
  if (index >= num_elements(loop)) {
    return;
  }
  std::int64_t offsets[kOperands];
  find_offsets(offsets, loop, index);
  static_cast<Out*>(out)[offsets[0]] = Store<Out>::to(
      apply(f, load(static_cast<const typename F::template In<T, static_cast<int>(k)>*>(
                   inputs.data[k])[offsets[k + 1]])...));
}

template <class F, std::size_t... k, class... In>
void map_inputs(void* stream, F f, std::index_sequence<k...> which, const View& out,
                const In&... in) {
  const auto loop = make_loop<sizeof...(In) + 1>({&out, &in...});
  const Pointers<sizeof...(In)> inputs{{in.data...}};
  const auto run = [&]<class T>() {
    launch(tag_name<F>(), map_kernel<T, F, k...>, num_elements(loop), kElementThreads, stream, f,
           loop, out.data, inputs, which);
  };
  const View* const views[] = {&in...};
  const DType dtype = views[sizeof...(In) - 1]->dtype;
  if constexpr (F::kIntegers) {
    dispatch_any(dtype, run);
  } else {
    dispatch_floating(dtype, run);
  }
}

template <class F, class... In>
void map(void* stream, F f, const View& out, const In&... in) {
  map_inputs(stream, f, std::index_sequence_for<In...>{}, out, in...);
}

}  // namespace fsdptrain::kernels::cuda
