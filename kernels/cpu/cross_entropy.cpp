#include "kernels/cpu/cross_entropy.h"

#include "kernels/cpu/row_softmax.h"

namespace fsdptrain::kernels {
inline namespace FSDPTRAIN_VARIANT {

// Elements per task.
constexpr std::int64_t kRowsBlock = 16384;

template <class E>
FSDPTRAIN_HOST_DEVICE OpMath<E> log_sum_exp(const E* row, std::int64_t size) {
  const OnlineSoftmax<OpMath<E>> state = row_softmax(row, size);
  return state.max + math::log(state.sum);
}

// The constants of a TokenLoss for rows of `size` logits.
template <class T>
struct RowLoss {
  T smoothing;
  T on_target;  // the share of the target's own loss
  T on_each;    // that of every class
  T z_loss;

  FSDPTRAIN_HOST_DEVICE RowLoss(const TokenLoss& loss, std::int64_t size)
      : smoothing(static_cast<T>(loss.label_smoothing)),
        on_target(static_cast<T>(1 - loss.label_smoothing)),
        on_each(static_cast<T>(loss.label_smoothing / static_cast<double>(size))),
        z_loss(static_cast<T>(loss.z_loss)) {}
};

template <class E>
FSDPTRAIN_HOST_DEVICE OpMath<E> row_loss(const E* row, std::int64_t size, std::int64_t target,
                                         OpMath<E> log_sum, const RowLoss<OpMath<E>>& loss) {
  using T = OpMath<E>;
  T value = log_sum - load(row[target]);
  if (loss.smoothing != T(0)) {
    const T sum = sum_lanes<T>(
        size, [row](std::int64_t i) __attribute__((always_inline)) { return load(row[i]); });
    const T of_all = log_sum - sum / static_cast<T>(size);
    value = math::fma(loss.smoothing, of_all, loss.on_target * value);
  }
  return math::fma(loss.z_loss * log_sum, log_sum, value);
}

// to = factor * the gradient of row_loss(); `to` may be `row`.
template <class E>
FSDPTRAIN_HOST_DEVICE void row_gradient(E* to, const E* row, std::int64_t size, std::int64_t target,
                                        OpMath<E> log_sum, const RowLoss<OpMath<E>>& loss,
                                        OpMath<E> factor) {
  using T = OpMath<E>;
  const T of_softmax = math::fma(loss.z_loss + loss.z_loss, log_sum, T(1));
  const T each = factor * loss.on_each;
  // From the logit itself: a probability rounded to E is too coarse to subtract 1 from.
  const T probability = math::exp(load(row[target]) - log_sum);
  const T at_target = factor * (of_softmax * probability - loss.on_target) - each;
  const T scale = factor * of_softmax;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < size; ++i) {
    to[i] = Store<E>::to(math::fma(scale, math::exp(load(row[i]) - log_sum), -each));
  }
  to[target] = Store<E>::to(at_target);
}

template <class E>
FSDPTRAIN_HOST_DEVICE void row_zero(E* to, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {
    to[i] = Store<E>::to(OpMath<E>(0));
  }
}

template <class T>
FSDPTRAIN_HOST_DEVICE T& element(const View& vector, std::int64_t index) {
  return static_cast<T*>(vector.data)[index * vector.strides[0]];
}

// body(row, target) for every row of logits.
template <class Body>
FSDPTRAIN_HOST_DEVICE void for_rows(const Launch& launch, const View& logits, const View& targets,
                                    const Body& body) {
  const std::int64_t block = max(1, kRowsBlock / max(1, logits.sizes[1]));
  parallel_blocks(launch, logits.sizes[0], block, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      body(row, element<const std::int64_t>(targets, row));
    }
  });
}

}  // namespace FSDPTRAIN_VARIANT

template <>
void cpu::cross_entropy_forward<kIsa>(const Launch& launch, const CrossEntropyForward& args) {
  dispatch_floating(args.logits.dtype, [&]<class E>() {
    using T = OpMath<E>;
    const std::int64_t size = args.logits.sizes[1];
    const RowLoss<T> loss(args.loss, size);
    for_rows(launch, args.logits, args.targets, [&](std::int64_t row, std::int64_t target) {
      const bool ignored = target == args.loss.ignore_index;
      const E* const logits =
          static_cast<const E*>(args.logits.data) + row * args.logits.strides[0];
      const T log_sum = ignored ? T(0) : log_sum_exp(logits, size);
      element<T>(args.log_sum_exps, row) = log_sum;
      element<T>(args.losses, row) = ignored ? T(0) : row_loss(logits, size, target, log_sum, loss);
    });
  });
}

template <>
void cpu::cross_entropy_backward<kIsa>(const Launch& launch, const CrossEntropyBackward& args) {
  dispatch_floating(args.logits.dtype, [&]<class E>() {
    using T = OpMath<E>;
    const T factor = static_cast<T>(args.factor) * *static_cast<const T*>(args.dloss.data);
    const std::int64_t size = args.logits.sizes[1];
    const RowLoss<T> loss(args.loss, size);
    for_rows(launch, args.logits, args.targets, [&](std::int64_t row, std::int64_t target) {
      const E* const logits =
          static_cast<const E*>(args.logits.data) + row * args.logits.strides[0];
      E* const dlogits = static_cast<E*>(args.dlogits.data) + row * args.dlogits.strides[0];
      if (target == args.loss.ignore_index) {
        row_zero(dlogits, size);
      } else {
        row_gradient(dlogits, logits, size, target, element<T>(args.log_sum_exps, row), loss,
                     factor);
      }
    });
  });
}

template <>
void cpu::cross_entropy_forward_backward<kIsa>(const Launch& launch,
                                               const CrossEntropyForwardBackward& args) {
  dispatch_floating(args.logits.dtype, [&]<class E>() {
    using T = OpMath<E>;
    const std::int64_t size = args.logits.sizes[1];
    const RowLoss<T> loss(args.loss, size);
    for_rows(launch, args.logits, args.targets, [&](std::int64_t row, std::int64_t target) {
      E* const logits = static_cast<E*>(args.logits.data) + row * args.logits.strides[0];
      if (target == args.loss.ignore_index) {
        element<T>(args.losses, row) = T(0);
        row_zero(logits, size);
        return;
      }
      const T log_sum = log_sum_exp<E>(logits, size);
      element<T>(args.losses, row) = row_loss<E>(logits, size, target, log_sum, loss);
      row_gradient<E>(logits, logits, size, target, log_sum, loss, static_cast<T>(args.factor));
    });
  });
}

}  // namespace fsdptrain::kernels
