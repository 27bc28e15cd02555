#include "kernels/cpu/softmax.h"

#include "kernels/cpu/row_softmax.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

template <class T>
FSDPTRAIN_HOST_DEVICE void softmax_row(T* y, const T* x, std::int64_t width, SoftmaxForm form) {
  using V = OpMath<T>;
  const OnlineSoftmax<V> state = row_softmax(x, width);
  if (form == SoftmaxForm::Log) {
    const V log_sum = math::log(state.sum);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      y[i] = Store<T>::to((load(x[i]) - state.max) - log_sum);
    }
  } else {
    const V factor = V(1) / state.sum;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      y[i] = Store<T>::to(math::exp(load(x[i]) - state.max) * factor);
    }
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE void softmax_row_backward(T* dx, const T* dy, const T* y, std::int64_t width,
                                                SoftmaxForm form) {
  using V = OpMath<T>;
  if (form == SoftmaxForm::Log) {
    const V sum = sum_lanes<V>(
        width, [dy](std::int64_t i) __attribute__((always_inline)) { return load(dy[i]); });
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      dx[i] = Store<T>::to(load(dy[i]) - math::exp(load(y[i])) * sum);
    }
  } else {
    const V sum = sum_lanes<V>(
        width, [ dy, y ](std::int64_t i)
                   __attribute__((always_inline)) { return load(dy[i]) * load(y[i]); });
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) {
      dx[i] = Store<T>::to(load(y[i]) * (load(dy[i]) - sum));
    }
  }
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::softmax<kIsa>(const Launch& launch, const View& y, const View& x,
                        const SoftmaxShape& shape, SoftmaxForm form) {
  dispatch_floating(x.dtype, [&]<class T>() {
    parallel_units(launch, shape.rows, shape.width, [&](std::int64_t row) {
      softmax_row(static_cast<T*>(y.data) + row * shape.width,
                  static_cast<const T*>(x.data) + row * shape.width, shape.width, form);
    });
  });
}

template <>
void cpu::softmax_backward<kIsa>(const Launch& launch, const View& dx, const View& dy,
                                 const View& y, const SoftmaxShape& shape, SoftmaxForm form) {
  dispatch_floating(y.dtype, [&]<class T>() {
    parallel_units(launch, shape.rows, shape.width, [&](std::int64_t row) {
      softmax_row_backward(static_cast<T*>(dx.data) + row * shape.width,
                           static_cast<const T*>(dy.data) + row * shape.width,
                           static_cast<const T*>(y.data) + row * shape.width, shape.width, form);
    });
  });
}

}  // namespace fsdptrain::kernels
