#include "runtime/ops/attention.h"

#include <cmath>

#include "kernels/attention.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::record;
using autograd::SavedTensor;

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                  const AttentionOptions& options) {
  check_floating("attention", q);
  for (const Tensor* other : {&k, &v}) {
    check_same_dtype("attention", q, *other);
    check_same_device("attention", q, *other);
  }
  check<ShapeError>(q.dims() == 4 && k.dims() == 4 && v.dims() == 4,
                    "attention: q, k and v must be [batch, position, head, feature], got {}, {} "
                    "and {}",
                    q.shape(), k.shape(), v.shape());
  check<ShapeError>(k.shape() == v.shape(), "attention: k and v must have one shape, got {} and {}",
                    k.shape(), v.shape());
  check<ShapeError>(q.size(0) == k.size(0) && q.size(3) == k.size(3),
                    "attention: q and k must have one batch and head size, got {} and {}",
                    q.shape(), k.shape());
  check<ShapeError>(q.size(3) >= 1, "attention: the head size must be at least 1, got {}",
                    q.shape());
  check<ShapeError>(q.size(2) == k.size(2),
                    "attention: grouped key-value heads are not supported yet, got {} query heads "
                    "and {} key-value heads",
                    q.size(2), k.size(2));
  check<ShapeError>(!options.positions.defined(),
                    "attention: positions are not supported yet, got a tensor of shape {}",
                    options.positions.shape());
  check<ShapeError>(!options.document_ids.defined(),
                    "attention: document_ids are not supported yet, got a tensor of shape {}",
                    options.document_ids.shape());
  check<ShapeError>(options.window == 0, "attention: a window is not supported yet, got {}",
                    options.window);
  check<ShapeError>(std::isfinite(options.scale), "attention: the scale must be finite, got {}",
                    options.scale);
}

}  // namespace

AttentionOutput attention(const Tensor& q_BTHD, const Tensor& k_BSHD, const Tensor& v_BSHD,
                          const AttentionOptions& options) {
  check_inputs(q_BTHD, k_BSHD, v_BSHD, options);
  const Shape& shape = q_BTHD.shape();
  const bool causal = options.causal;
  const double scale =
      options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(shape.back()));
  const std::vector<Tensor> outputs = autograd::keep_or_run("attention", [&] {
    const Tensor out = Tensor::empty(shape, q_BTHD.dtype(), q_BTHD.device());
    const Tensor log_sum_exp = Tensor::empty(
        {shape[0], shape[2], shape[1]},
        q_BTHD.dtype() == DType::Float64 ? DType::Float64 : DType::Float32, q_BTHD.device());
    kernels::attention_forward(q_BTHD.launch(), {.out_BTHD = out.view(),
                                                 .log_sum_exp_BHT = log_sum_exp.view(),
                                                 .q_BTHD = q_BTHD.view(),
                                                 .k_BSHD = k_BSHD.view(),
                                                 .v_BSHD = v_BSHD.view(),
                                                 .scale = scale,
                                                 .causal = causal});
    return std::vector{out, log_sum_exp};
  });
  const Tensor& out_BTHD = outputs[0];
  const Tensor& log_sum_exp_BHT = outputs[1];

  const Tensor recorded =
      record("attention", out_BTHD, {q_BTHD, k_BSHD, v_BSHD},
             [q = SavedTensor(q_BTHD), k = SavedTensor(k_BSHD), v = SavedTensor(v_BSHD),
              out = SavedTensor(out_BTHD), log_sum_exp = SavedTensor(log_sum_exp_BHT), scale,
              causal](const Tensor& dout_BTHD, GradientSink&) -> Gradients {
               const auto gradient_of = [](const Tensor& x) {
                 return Tensor::empty(x.shape(), x.dtype(), x.device());
               };
               const Tensor dq_BTHD = gradient_of(q.get());
               const Tensor dk_BSHD = gradient_of(k.get());
               const Tensor dv_BSHD = gradient_of(v.get());
               kernels::attention_backward(dout_BTHD.launch(),
                                           {.dq_BTHD = dq_BTHD.view(),
                                            .dk_BSHD = dk_BSHD.view(),
                                            .dv_BSHD = dv_BSHD.view(),
                                            .dout_BTHD = dout_BTHD.view(),
                                            .q_BTHD = q.get().view(),
                                            .k_BSHD = k.get().view(),
                                            .v_BSHD = v.get().view(),
                                            .out_BTHD = out.get().view(),
                                            .log_sum_exp_BHT = log_sum_exp.get().view(),
                                            .scale = scale,
                                            .causal = causal});
               return {dq_BTHD, dk_BSHD, dv_BSHD};
             });
  return {recorded, log_sum_exp_BHT};
}

}  // namespace fsdptrain::ops
