#include "runtime/ops/loss.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "runtime/autograd/node.h"
#include "runtime/base/error.h"
#include "runtime/ops/token_losses.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::ops {
namespace {

using autograd::Gradients;
using autograd::GradientSink;
using autograd::record;
using autograd::SavedTensor;

}  // namespace

Tensor cross_entropy(const Tensor& logits_NV, const Tensor& targets_N,
                     const CrossEntropyOptions& options) {
  check_targets("cross_entropy", logits_NV, targets_N);
  const kernels::TokenLoss token_loss{.ignore_index = options.ignore_index,
                                      .label_smoothing = options.label_smoothing,
                                      .z_loss = options.z_loss};
  check_token_loss("cross_entropy", token_loss);
  const Tensor logits = as_dense_rows(logits_NV);
  const Tensor targets = as_dense_vector(targets_N);
  const std::int64_t counted =
      count_targets("cross_entropy", targets, logits.size(1), options.ignore_index);
  const bool mean = options.reduction == Reduction::Mean;
  check<DataError>(!mean || counted > 0 || logits_NV.device().type == DeviceType::Meta,
                   "cross_entropy: the mean needs a target that counts, got {} of which all are {}",
                   targets.numel(), options.ignore_index);
  const double factor = mean ? 1 / static_cast<double>(std::max<std::int64_t>(counted, 1)) : 1.0;
  const Tensor losses = Tensor::empty(targets.shape(), loss_dtype(logits), logits.device());
  const Tensor log_sum_exps = Tensor::empty(targets.shape(), loss_dtype(logits), logits.device());
  kernels::cross_entropy_forward(logits.launch(), {.losses = losses.view(),
                                                   .log_sum_exps = log_sum_exps.view(),
                                                   .logits = logits.view(),
                                                   .targets = targets.view(),
                                                   .loss = token_loss});
  return record("cross_entropy", scaled_total(losses, factor), {logits_NV},
                [logits_NV = SavedTensor(logits_NV), targets = SavedTensor(targets),
                 log_sum_exps = SavedTensor(log_sum_exps), factor,
                 token_loss](const Tensor& dloss, GradientSink&) -> Gradients {
                  const Tensor rows = as_dense_rows(logits_NV.get());
                  const Tensor dlogits = Tensor::empty(rows.shape(), rows.dtype(), rows.device());
                  kernels::cross_entropy_backward(rows.launch(),
                                                  {.dlogits = dlogits.view(),
                                                   .logits = rows.view(),
                                                   .log_sum_exps = log_sum_exps.get().view(),
                                                   .targets = targets.get().view(),
                                                   .dloss = dloss.view(),
                                                   .factor = factor,
                                                   .loss = token_loss});
                  return {views::reshape(dlogits, logits_NV.get().shape())};
                });
}

}  // namespace fsdptrain::ops
