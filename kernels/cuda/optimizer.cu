#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/segment_table.cuh"
#include "kernels/functors/optimizer_step.h"

namespace fsdptrain::kernels::cuda {
namespace {

template <class T>
__global__ void adamw_kernel(const __grid_constant__ SegmentTable<AdamwSegment> table, T* p,
                             const T* g, T* m, T* v, AdamwConstants constants,
                             const double* scale) {
  const std::int64_t index = thread_index();
  if (index >= table.first[table.count]) {
    return;
  }
  const auto [segment, i] = find_place(table, index);
  const AdamwFactors<T> by(table.segments[segment], constants, scale == nullptr ? 1.0 : *scale);
  const AdamwElement<T> next = adamw_step({p[i], m[i], v[i]}, g[i], by);
  m[i] = next.average;
  v[i] = next.square;
  p[i] = next.parameter;
}

template <class T>
__global__ void sgd_kernel(const __grid_constant__ SegmentTable<SgdSegment> table, T* p, const T* g,
                           T* buffer, double momentum, const double* scale) {
  const std::int64_t index = thread_index();
  if (index >= table.first[table.count]) {
    return;
  }
  const auto [segment, i] = find_place(table, index);
  const SgdFactors<T> by(table.segments[segment], momentum, scale == nullptr ? 1.0 : *scale);
  T direction = decayed_gradient(p[i], g[i], by);
  if (buffer != nullptr) {
    direction = math::fma(by.momentum, buffer[i], direction);
    buffer[i] = direction;
  }
  p[i] = sgd_step(p[i], direction, by);
}

__global__ void sqrt_kernel(double* out, const double* in) {
  *out = math::sqrt(*in);
}

__global__ void clip_factor_kernel(double* out, const double* norm, double max_norm) {
  *out = clip_factor_of(*norm, max_norm);
}

// Optimizers are float32 or float64.
template <class Fn>
void dispatch_state(DType dtype, const Fn& fn) {
  dtype == DType::Float64 ? fn.template operator()<double>() : fn.template operator()<float>();
}

}  // namespace

void adamw(void* stream, const View& parameters, const View& gradients, const View& exp_avg,
           const View& exp_avg_sq, const AdamwSegment* segments, std::int64_t num_segments,
           const AdamwConstants& constants, const double* scale) {
  dispatch_state(parameters.dtype, [&]<class T>() {
    for_each_table(segments, num_segments, [&](const SegmentTable<AdamwSegment>& table) {
      launch("adamw", adamw_kernel<T>, table.first[table.count], kElementThreads, stream, table,
             static_cast<T*>(parameters.data), static_cast<const T*>(gradients.data),
             static_cast<T*>(exp_avg.data), static_cast<T*>(exp_avg_sq.data), constants, scale);
    });
  });
}

void sgd(void* stream, const View& parameters, const View& gradients, const View* momentum,
         double momentum_factor, const SgdSegment* segments, std::int64_t num_segments,
         const double* scale) {
  dispatch_state(parameters.dtype, [&]<class T>() {
    T* const buffer = momentum == nullptr ? nullptr : static_cast<T*>(momentum->data);
    for_each_table(segments, num_segments, [&](const SegmentTable<SgdSegment>& table) {
      launch("sgd", sgd_kernel<T>, table.first[table.count], kElementThreads, stream, table,
             static_cast<T*>(parameters.data), static_cast<const T*>(gradients.data), buffer,
             momentum_factor, scale);
    });
  });
}

void sqrt_of(void* stream, const View& out, const View& in) {
  launch("sqrt_of", sqrt_kernel, 1, 1, stream, static_cast<double*>(out.data),
         static_cast<const double*>(in.data));
}

void clip_factor(void* stream, const View& out, const View& norm, double max_norm) {
  launch("clip_factor", clip_factor_kernel, 1, 1, stream, static_cast<double*>(out.data),
         static_cast<const double*>(norm.data), max_norm);
}

}  // namespace fsdptrain::kernels::cuda
