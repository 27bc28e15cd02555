#include "runtime/ops/linear_cross_entropy.h"

#include <algorithm>
#include <memory>

#include "kernels/copy.h"
#include "kernels/cross_entropy.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/node.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/ops/checks.h"
#include "runtime/ops/dense.h"
#include "runtime/ops/matrix.h"
#include "runtime/ops/token_losses.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::GradientTarget;
using autograd::record;
using autograd::SavedTensor;

Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t rows) {
  return views::narrow(x, 0, begin, rows);
}

// Gathers the gradient of the head's weight over chunks of tokens.
class WeightGradient {
 public:
  // Of nothing: add() and finish() have no effect.
  WeightGradient() = default;
  explicit WeightGradient(const GradientTarget& target, DType operands) : target_(target) {
    const Tensor& destination = target.destination;
    // Sums over chunks are kept in float32 for bfloat16, and in a layout that products write.
    const DType sum_dtype = operands == DType::BFloat16 ? DType::Float32 : operands;
    direct_ = destination.dtype() == sum_dtype && kernels::is_matrix(destination.view());
    sum_ = direct_ ? destination
                   : Tensor::empty(destination.shape(), sum_dtype, destination.device(),
                                   MemoryCategory::Workspace);
    started_ = direct_ && target.accumulate;
  }

  // += dlogits^T hidden
  void add(const Tensor& dlogits_NV, const Tensor& hidden_NC) {
    if (sum_.defined()) {
      multiply_into(sum_, views::transpose(dlogits_NV, 0, 1), hidden_NC, started_ ? 1 : 0);
      started_ = true;
    }
  }

  void finish() {
    if (!sum_.defined()) {
      return;
    }
    if (!started_) {
      kernels::fill(sum_.launch(), sum_.view(), 0);
    }
    if (!direct_) {
      autograd::write_gradient(target_, sum_);
    }
    sum_ = Tensor();
  }

 private:
  GradientTarget target_;
  Tensor sum_;
  bool direct_ = false;
  bool started_ = false;
};

// The operands of a linear_cross_entropy as matrices.
struct Head {
  Tensor hidden_NC;
  Tensor weight_VC;
  Tensor targets_N;
  kernels::TokenLoss loss;

  std::int64_t tokens() const { return hidden_NC.size(0); }
  // Room for one chunk of logits.
  Tensor logits() const {
    return Tensor::empty({std::min(kHeadChunk, tokens()), weight_VC.size(0)}, hidden_NC.dtype(),
                         hidden_NC.device(), MemoryCategory::Workspace);
  }
};

// Calls body(begin, hidden, targets, logits) for each chunk of tokens; `logits` lie in `buffer`.
template <class Body>
void for_chunks(const Head& head, const Tensor& buffer, const Body& body) {
  for (std::int64_t begin = 0; begin < head.tokens(); begin += kHeadChunk) {
    const std::int64_t rows = std::min(kHeadChunk, head.tokens() - begin);
    const Tensor hidden = rows_of(head.hidden_NC, begin, rows);
    const Tensor logits = rows_of(buffer, 0, rows);
    multiply_into(logits, hidden, views::transpose(head.weight_VC, 0, 1), 0);
    body(begin, rows, hidden, rows_of(head.targets_N, begin, rows), logits);
  }
}

// The losses [N], without gradient; fills log_sum_exps.
Tensor losses_of(const Head& head, const Tensor& log_sum_exps) {
  const Tensor losses =
      Tensor::empty({head.tokens()}, loss_dtype(head.hidden_NC), head.hidden_NC.device());
  for_chunks(head, head.logits(),
             [&](std::int64_t begin, std::int64_t rows, const Tensor&, const Tensor& targets,
                 const Tensor& logits) {
               kernels::cross_entropy_forward(
                   logits.launch(), {.losses = rows_of(losses, begin, rows).view(),
                                     .log_sum_exps = rows_of(log_sum_exps, begin, rows).view(),
                                     .logits = logits.view(),
                                     .targets = targets.view(),
                                     .loss = head.loss});
             });
  return losses;
}

Tensor recomputed(const Head& head, const Tensor& hidden, const Tensor& weight, double loss_scale) {
  const Tensor log_sum_exps = Tensor::empty({head.tokens()}, loss_dtype(hidden), hidden.device());
  const Tensor loss = scaled_total(losses_of(head, log_sum_exps), loss_scale);
  return record(
      "linear_cross_entropy", loss, {hidden, weight},
      [hidden = SavedTensor(hidden), weight = SavedTensor(weight),
       targets = SavedTensor(head.targets_N), log_sum_exps = SavedTensor(log_sum_exps),
       token_loss = head.loss, loss_scale](const Tensor& dloss, GradientSink& sink) -> Gradients {
        const ProfileScope scope(current_context().profile, "linear_cross_entropy");
        const Head again{as_dense_rows(hidden.get()), dense(weight.get()), targets.get(),
                         token_loss};
        Tensor dhidden;
        if (sink.wants(0)) {
          dhidden = Tensor::empty(again.hidden_NC.shape(), hidden.get().dtype(), dloss.device());
        }
        WeightGradient dweight =
            sink.wants(1) ? WeightGradient(sink.open(1), weight.get().dtype()) : WeightGradient();
        for_chunks(again, again.logits(),
                   [&](std::int64_t begin, std::int64_t rows, const Tensor& hidden_NC,
                       const Tensor& targets_N, const Tensor& logits_NV) {
                     kernels::cross_entropy_backward(
                         logits_NV.launch(),
                         {.dlogits = logits_NV.view(),
                          .logits = logits_NV.view(),
                          .log_sum_exps = rows_of(log_sum_exps.get(), begin, rows).view(),
                          .targets = targets_N.view(),
                          .dloss = dloss.view(),
                          .factor = loss_scale,
                          .loss = token_loss});
                     if (dhidden.defined()) {
                       multiply_into(rows_of(dhidden, begin, rows), logits_NV, again.weight_VC, 0);
                     }
                     dweight.add(logits_NV, hidden_NC);
                   });
        dweight.finish();
        return {dhidden.defined() ? views::reshape(dhidden, hidden.get().shape()) : Tensor(),
                Tensor()};
      });
}

// Opens the gradient of a weight in forward, and takes that back unless the forward is completed.
class GradientAhead {
 public:
  explicit GradientAhead(const Tensor& weight) : meta_(weight.autograd_meta().get()) {
    if (meta_ == nullptr) {
      return;
    }
    check<AutogradError>(autograd::gradient_ahead(*meta_) == 0,
                         "linear_cross_entropy: with its gradient in forward, the weight of shape "
                         "{} must see the backward of one forward, or zero_grad(), before the "
                         "next forward",
                         weight.shape());
    target_ = meta_->slot
                  ? meta_->slot->open()
                  : GradientTarget{Tensor::empty(weight.shape(), weight.dtype(), weight.device(),
                                                 autograd::gradient_category(*meta_)),
                                   false};
    number_ = ++current_context().autograd.last_gradient_ahead;
    autograd::set_gradient_ahead(*meta_, number_);
  }
  GradientAhead(const GradientAhead&) = delete;
  GradientAhead& operator=(const GradientAhead&) = delete;
  ~GradientAhead() {
    if (meta_ == nullptr || completed_) {
      return;
    }
    autograd::set_gradient_ahead(*meta_, 0);
    if (meta_->slot) {
      meta_->slot->abandon(target_);
    }
  }

  bool wanted() const { return meta_ != nullptr; }
  const GradientTarget& target() const { return target_; }
  // The gradient where it is a tensor of its own and not in a slot; else undefined.
  Tensor apart() const { return wanted() && !meta_->slot ? target_.destination : Tensor(); }
  // Tells this forward from others of the same weight.
  std::uint64_t number() const { return number_; }
  void complete() { completed_ = true; }

 private:
  autograd::Meta* meta_;
  GradientTarget target_;
  std::uint64_t number_ = 0;
  bool completed_ = false;
};

Tensor with_gradient_in_forward(const Head& head, const Tensor& hidden, const Tensor& weight,
                                double loss_scale) {
  check<AutogradError>(!autograd::in_region(),
                       "linear_cross_entropy: its gradient in forward cannot be computed again: "
                       "leave it out of the recomputed region, or use HeadForm::Recompute");
  GradientAhead ahead(weight);
  WeightGradient gathered =
      ahead.wanted() ? WeightGradient(ahead.target(), weight.dtype()) : WeightGradient();
  Tensor dhidden;
  if (hidden.requires_grad()) {
    dhidden = Tensor::empty(head.hidden_NC.shape(), hidden.dtype(), hidden.device());
  }
  const Tensor losses = Tensor::empty({head.tokens()}, loss_dtype(hidden), hidden.device());
  for_chunks(head, head.logits(),
             [&](std::int64_t begin, std::int64_t rows, const Tensor& hidden_NC,
                 const Tensor& targets_N, const Tensor& logits_NV) {
               kernels::cross_entropy_forward_backward(
                   logits_NV.launch(), {.losses = rows_of(losses, begin, rows).view(),
                                        .logits = logits_NV.view(),
                                        .targets = targets_N.view(),
                                        .factor = loss_scale,
                                        .loss = head.loss});
               if (dhidden.defined()) {
                 multiply_into(rows_of(dhidden, begin, rows), logits_NV, head.weight_VC, 0);
               }
               gathered.add(logits_NV, hidden_NC);
             });
  gathered.finish();
  if (dhidden.defined()) {
    dhidden = views::reshape(dhidden, hidden.shape());
  }
  Tensor loss = record(
      "linear_cross_entropy", scaled_total(losses, loss_scale), {hidden, weight},
      [dhidden = SavedTensor(dhidden), dweight = SavedTensor(ahead.apart()),
       number = ahead.number(), meta = std::weak_ptr(weight.autograd_meta())](
          const Tensor& dloss, GradientSink&) -> Gradients {
        if (dloss.device().type == DeviceType::Cpu) {
          check<AutogradError>(dloss.item() == 1,
                               "linear_cross_entropy: with its gradient in forward, the gradient "
                               "of the loss must be 1, got {}: pass loss_scale, or use "
                               "HeadForm::Recompute",
                               dloss.item());
        }
        if (const auto weight_meta = meta.lock()) {
          check<AutogradError>(autograd::gradient_ahead(*weight_meta) == number,
                               "linear_cross_entropy: with its gradient in forward, one backward "
                               "is all there is, and zero_grad() does not come before it: the "
                               "gradient of the weight of shape {} is gone",
                               weight_meta->shape);
          autograd::set_gradient_ahead(*weight_meta, 0);
        }
        return {dhidden.get(), dweight.get()};
      });
  ahead.complete();
  return loss;
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& hidden_NC, const Tensor& weight_VC,
                            const Tensor& targets_N, const LinearCrossEntropyOptions& options) {
  constexpr const char* kOp = "linear_cross_entropy";
  check_targets(kOp, hidden_NC, targets_N);
  check_same_dtype(kOp, hidden_NC, weight_VC);
  check_same_device(kOp, hidden_NC, weight_VC);
  check<ShapeError>(weight_VC.dims() == 2 && weight_VC.size(1) == hidden_NC.size(-1),
                    "{}: hidden of shape {} does not fit weight [classes, features] of shape {}",
                    kOp, hidden_NC.shape(), weight_VC.shape());
  const kernels::TokenLoss token_loss{.ignore_index = options.ignore_index,
                                      .label_smoothing = options.label_smoothing,
                                      .z_loss = options.z_loss};
  check_token_loss(kOp, token_loss);
  const Head head{as_dense_rows(hidden_NC), dense(weight_VC), as_dense_vector(targets_N),
                  token_loss};
  const ProfileScope scope(current_context().profile, kOp);
  count_targets(kOp, head.targets_N, weight_VC.size(0), options.ignore_index);
  if (!autograd::records({hidden_NC, weight_VC})) {
    const Tensor log_sum_exps =
        Tensor::empty({head.tokens()}, loss_dtype(hidden_NC), hidden_NC.device());
    return scaled_total(losses_of(head, log_sum_exps), options.loss_scale);
  }
  switch (options.form) {
    case HeadForm::Recompute:
      return recomputed(head, hidden_NC, weight_VC, options.loss_scale);
    case HeadForm::GradientInForward:
      return with_gradient_in_forward(head, hidden_NC, weight_VC, options.loss_scale);
  }
  __builtin_unreachable();
}

}  // namespace fsdptrain::ops
