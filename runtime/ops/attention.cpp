#include "runtime/ops/attention.h"

#include <cmath>

#include "kernels/attention.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/ops/checks.h"
#include "runtime/tensor/views.h"

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

// One projection's output as heads, [B, T, H, D] each.
struct Heads {
  Tensor q_BTHD;
  Tensor k_BSHD;
  Tensor v_BSHD;
};

Heads unpacked(const Tensor& qkv_BTX, std::int64_t num_heads) {
  const std::int64_t width = qkv_BTX.size(2) / 3;
  const auto part = [&](std::int64_t index) {
    return views::reshape(views::narrow(qkv_BTX.detach(), 2, index * width, width),
                          {qkv_BTX.size(0), qkv_BTX.size(1), num_heads, width / num_heads});
  };
  return {part(0), part(1), part(2)};
}

struct Settings {
  double scale;
  bool causal;

  Settings(const AttentionOptions& options, std::int64_t head_size)
      : scale(options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(head_size))),
        causal(options.causal) {}
};

// The output and its log-sum-exp.
std::vector<Tensor> forward(const Heads& heads, const Settings& settings) {
  const auto& [q, k, v] = heads;
  return autograd::keep_or_run("attention", [&] {
    const Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device());
    const Tensor log_sum_exp =
        Tensor::empty({q.size(0), q.size(2), q.size(1)},
                      q.dtype() == DType::Float64 ? DType::Float64 : DType::Float32, q.device());
    kernels::attention_forward(q.launch(), {.out_BTHD = out.view(),
                                            .log_sum_exp_BHT = log_sum_exp.view(),
                                            .q_BTHD = q.view(),
                                            .k_BSHD = k.view(),
                                            .v_BSHD = v.view(),
                                            .scale = settings.scale,
                                            .causal = settings.causal});
    return std::vector{out, log_sum_exp};
  });
}

// What a backward reads besides the heads.
struct Saved {
  SavedTensor out;
  SavedTensor log_sum_exp;
  Settings settings;
};

void backward(const Heads& gradients, const Tensor& dout_BTHD, const Heads& heads,
              const Saved& saved) {
  kernels::attention_backward(dout_BTHD.launch(),
                              {.dq_BTHD = gradients.q_BTHD.view(),
                               .dk_BSHD = gradients.k_BSHD.view(),
                               .dv_BSHD = gradients.v_BSHD.view(),
                               .dout_BTHD = dout_BTHD.view(),
                               .q_BTHD = heads.q_BTHD.view(),
                               .k_BSHD = heads.k_BSHD.view(),
                               .v_BSHD = heads.v_BSHD.view(),
                               .out_BTHD = saved.out.get().view(),
                               .log_sum_exp_BHT = saved.log_sum_exp.get().view(),
                               .scale = saved.settings.scale,
                               .causal = saved.settings.causal});
}

Tensor like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), x.device());
}

}  // namespace

AttentionOutput attention(const Tensor& q_BTHD, const Tensor& k_BSHD, const Tensor& v_BSHD,
                          const AttentionOptions& options) {
  check_inputs(q_BTHD, k_BSHD, v_BSHD, options);
  const Settings settings(options, q_BTHD.size(3));
  const std::vector<Tensor> outputs = forward({q_BTHD, k_BSHD, v_BSHD}, settings);
  const Tensor recorded =
      record("attention", outputs[0], {q_BTHD, k_BSHD, v_BSHD},
             [q = SavedTensor(q_BTHD), k = SavedTensor(k_BSHD), v = SavedTensor(v_BSHD),
              saved = Saved{outputs[0], outputs[1], settings}](const Tensor& dout_BTHD,
                                                               GradientSink&) -> Gradients {
               const Heads gradients{like(q.get()), like(k.get()), like(v.get())};
               backward(gradients, dout_BTHD, {q.get(), k.get(), v.get()}, saved);
               return {gradients.q_BTHD, gradients.k_BSHD, gradients.v_BSHD};
             });
  return {recorded, outputs[1]};
}

AttentionOutput packed_attention(const Tensor& qkv_BTX, std::int64_t num_heads,
                                 const AttentionOptions& options) {
  check<ShapeError>(qkv_BTX.dims() == 3 && num_heads >= 1 && qkv_BTX.size(2) >= 3 * num_heads &&
                        qkv_BTX.size(2) % (3 * num_heads) == 0,
                    "attention: packed queries, keys and values of {} heads must be [batch, "
                    "position, 3 * heads * head size], got {}",
                    num_heads, qkv_BTX.shape());
  const Heads heads = unpacked(qkv_BTX, num_heads);
  check_inputs(heads.q_BTHD, heads.k_BSHD, heads.v_BSHD, options);
  const Settings settings(options, heads.q_BTHD.size(3));
  const std::vector<Tensor> outputs = forward(heads, settings);
  const Tensor recorded = record(
      "attention", outputs[0], {qkv_BTX},
      [qkv = SavedTensor(qkv_BTX), num_heads, saved = Saved{outputs[0], outputs[1], settings}](
          const Tensor& dout_BTHD, GradientSink&) -> Gradients {
        const Tensor dqkv_BTX = like(qkv.get());
        backward(unpacked(dqkv_BTX, num_heads), dout_BTHD, unpacked(qkv.get(), num_heads), saved);
        return {dqkv_BTX};
      });
  return {recorded, outputs[1]};
}

}  // namespace fsdptrain::ops
