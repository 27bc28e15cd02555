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

void check_documents(const Tensor& q, const Tensor& k, const Tensor& ids) {
  if (!ids.defined()) {
    return;
  }
  check<DTypeError>(ids.dtype() == DType::Int64, "attention: document_ids must be int64, got {}",
                    ids.dtype());
  check_same_device("attention", q, ids);
  check<ShapeError>(q.size(1) == k.size(1),
                    "attention: document_ids are of as many queries as keys, got {} and {}",
                    q.size(1), k.size(1));
  check<ShapeError>(ids.shape() == Shape{q.size(0), q.size(1)},
                    "attention: document_ids of shape {} do not fit queries of shape {}",
                    ids.shape(), q.shape());
}

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
  check<ShapeError>(q.size(2) == k.size(2) || (k.size(2) > 0 && q.size(2) % k.size(2) == 0),
                    "attention: query heads must be a multiple of key-value heads, got {} and {}",
                    q.size(2), k.size(2));
  check<ShapeError>(options.window >= 0, "attention: the window must not be negative, got {}",
                    options.window);
  check<ShapeError>(std::isfinite(options.scale), "attention: the scale must be finite, got {}",
                    options.scale);
  check_documents(q, k, options.document_ids);
}

// One projection's output as heads, [B, T, H, D] and [B, T, G, D].
struct Heads {
  Tensor q_BTHD;
  Tensor k_BSGD;
  Tensor v_BSGD;
};

Heads unpacked(const Tensor& qkv_BTX, const PackedHeads& heads) {
  const std::int64_t head_size = qkv_BTX.size(2) / (heads.num_heads + 2 * heads.num_kv_heads);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return views::reshape(views::narrow(qkv_BTX.detach(), 2, first * head_size, count * head_size),
                          {qkv_BTX.size(0), qkv_BTX.size(1), count, head_size});
  };
  return {part(0, heads.num_heads), part(heads.num_heads, heads.num_kv_heads),
          part(heads.num_heads + heads.num_kv_heads, heads.num_kv_heads)};
}

struct Settings {
  double scale;
  bool causal;
  std::int64_t window;

  Settings(const AttentionOptions& options, std::int64_t head_size)
      : scale(options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(head_size))),
        causal(options.causal),
        window(options.window) {}

  // `document_ids` may be undefined.
  kernels::AttentionMask mask(const Tensor& document_ids) const {
    return {.causal = causal,
            .window = window,
            .document_ids_BT = document_ids.defined() ? document_ids.view() : View(),
            .has_documents = document_ids.defined()};
  }
};

// The output and its log-sum-exp.
std::vector<Tensor> forward(const Heads& heads, const Settings& settings,
                            const Tensor& document_ids) {
  const Tensor& q = heads.q_BTHD;
  return autograd::keep_or_run("attention", [&] {
    const Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device());
    const Tensor log_sum_exp =
        Tensor::empty({q.size(0), q.size(2), q.size(1)},
                      q.dtype() == DType::Float64 ? DType::Float64 : DType::Float32, q.device());
    kernels::attention_forward(q.launch(), {.out_BTHD = out.view(),
                                            .log_sum_exp_BHT = log_sum_exp.view(),
                                            .q_BTHD = q.view(),
                                            .k_BSGD = heads.k_BSGD.view(),
                                            .v_BSGD = heads.v_BSGD.view(),
                                            .scale = settings.scale,
                                            .mask = settings.mask(document_ids)});
    return std::vector{out, log_sum_exp};
  });
}

// What a backward reads besides the heads.
struct Saved {
  SavedTensor out;
  SavedTensor log_sum_exp;
  SavedTensor document_ids;
  Settings settings;
};

void backward(const Heads& gradients, const Tensor& dout_BTHD, const Heads& heads,
              const Saved& saved) {
  const Tensor document_ids = saved.document_ids.get();
  kernels::attention_backward(dout_BTHD.launch(),
                              {.dq_BTHD = gradients.q_BTHD.view(),
                               .dk_BSGD = gradients.k_BSGD.view(),
                               .dv_BSGD = gradients.v_BSGD.view(),
                               .dout_BTHD = dout_BTHD.view(),
                               .q_BTHD = heads.q_BTHD.view(),
                               .k_BSGD = heads.k_BSGD.view(),
                               .v_BSGD = heads.v_BSGD.view(),
                               .out_BTHD = saved.out.get().view(),
                               .log_sum_exp_BHT = saved.log_sum_exp.get().view(),
                               .scale = saved.settings.scale,
                               .mask = saved.settings.mask(document_ids)});
}

Tensor like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype(), x.device());
}

}  // namespace

AttentionOutput attention(const Tensor& q_BTHD, const Tensor& k_BSGD, const Tensor& v_BSGD,
                          const AttentionOptions& options) {
  check_inputs(q_BTHD, k_BSGD, v_BSGD, options);
  const Settings settings(options, q_BTHD.size(3));
  const std::vector<Tensor> outputs =
      forward({q_BTHD, k_BSGD, v_BSGD}, settings, options.document_ids);
  const Tensor recorded =
      record("attention", outputs[0], {q_BTHD, k_BSGD, v_BSGD},
             [q = SavedTensor(q_BTHD), k = SavedTensor(k_BSGD), v = SavedTensor(v_BSGD),
              saved = Saved{outputs[0], outputs[1], options.document_ids, settings}](
                 const Tensor& dout_BTHD, GradientSink&) -> Gradients {
               const Heads gradients{like(q.get()), like(k.get()), like(v.get())};
               backward(gradients, dout_BTHD, {q.get(), k.get(), v.get()}, saved);
               return {gradients.q_BTHD, gradients.k_BSGD, gradients.v_BSGD};
             });
  return {recorded, outputs[1]};
}

AttentionOutput packed_attention(const Tensor& qkv_BTX, const PackedHeads& heads,
                                 const AttentionOptions& options) {
  check<ShapeError>(heads.num_heads >= 1 && heads.num_kv_heads >= 1,
                    "attention: needs at least one query head and one key-value head, got {} and "
                    "{}",
                    heads.num_heads, heads.num_kv_heads);
  const std::int64_t all_heads = heads.num_heads + 2 * heads.num_kv_heads;
  check<ShapeError>(
      qkv_BTX.dims() == 3 && qkv_BTX.size(2) >= all_heads && qkv_BTX.size(2) % all_heads == 0,
      "attention: packed {} query and {} key-value heads must be [batch, position, (query heads + "
      "2 "
      "* key-value heads) * head size], got {}",
      heads.num_heads, heads.num_kv_heads, qkv_BTX.shape());
  const Heads parts = unpacked(qkv_BTX, heads);
  check_inputs(parts.q_BTHD, parts.k_BSGD, parts.v_BSGD, options);
  const Settings settings(options, parts.q_BTHD.size(3));
  const std::vector<Tensor> outputs = forward(parts, settings, options.document_ids);
  const Tensor recorded =
      record("attention", outputs[0], {qkv_BTX},
             [qkv = SavedTensor(qkv_BTX), heads,
              saved = Saved{outputs[0], outputs[1], options.document_ids, settings}](
                 const Tensor& dout_BTHD, GradientSink&) -> Gradients {
               const Tensor dqkv_BTX = like(qkv.get());
               backward(unpacked(dqkv_BTX, heads), dout_BTHD, unpacked(qkv.get(), heads), saved);
               return {dqkv_BTX};
             });
  return {recorded, outputs[1]};
}

}  // namespace fsdptrain::ops
