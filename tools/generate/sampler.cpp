#include "tools/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/nn/evaluation_guard.h"
#include "runtime/tensor/transfer.h"
#include "runtime/tensor/views.h"

namespace fsdptrain::tools {

namespace {

double checked_largest(const std::vector<double>& logits) {
  check(std::ranges::none_of(logits, [](double logit) { return std::isnan(logit); }),
        "generate: the model gives a logit of nan: its weights overflow: train again, with a lower "
        "optimizer.lr");
  const double largest = logits.empty() ? 0 : std::ranges::max(logits);
  check(!logits.empty() && std::isfinite(largest),
        "generate: the largest logit of the model is {}: its weights overflow: train again, with a "
        "lower optimizer.lr",
        largest);
  return largest;
}

// Weight 0 for all tokens that are less likely than the top_k-th.
void keep_top_k(std::vector<double>& weights, std::int64_t top_k) {
  if (top_k == 0 || top_k >= static_cast<std::int64_t>(weights.size())) {
    return;
  }
  std::vector<double> sorted = weights;
  std::ranges::nth_element(sorted, sorted.begin() + (top_k - 1), std::greater<>());
  const double threshold = sorted[static_cast<std::size_t>(top_k - 1)];
  std::ranges::replace_if(
      weights, [threshold](double weight) { return weight < threshold; }, 0.0);
}

// Weight 0 for all tokens behind those that have the share top_p of all weight; of equally likely
// ones the first come first.
void keep_top_p(std::vector<double>& weights, double top_p) {
  if (top_p >= 1) {
    return;
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&weights](std::size_t token) { return weights[token]; });
  const double enough = top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (const std::size_t token : order) {
    const bool kept = sum < enough;
    sum += weights[token];
    weights[token] = kept ? weights[token] : 0;
  }
}

}  // namespace

std::int64_t draw(const std::vector<double>& logits, const SamplingOptions& options,
                  double uniform) {
  const double largest = checked_largest(logits);
  if (options.temperature == 0) {
    return std::ranges::max_element(logits) - logits.begin();
  }
  std::vector<double> weights(logits.size());
  std::ranges::transform(logits, weights.begin(), [&](double logit) {
    return std::exp((logit - largest) / options.temperature);
  });
  keep_top_k(weights, options.top_k);
  keep_top_p(weights, options.top_p);
  double rest = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t token = 0; token < weights.size(); ++token) {
    rest -= weights[token];
    if (rest < 0) {
      return static_cast<std::int64_t>(token);
    }
  }
  // Rounding left a little over.
  return std::ranges::max_element(weights) - weights.begin();
}

void sample(models::Decoder& model, std::vector<std::int64_t> tokens,
            const SamplingOptions& options, const std::function<bool(std::int64_t)>& emit) {
  check<ConfigError>(!tokens.empty(), "generate: the prompt needs at least one token");
  const autograd::NoGradGuard no_grad;
  const nn::EvaluationGuard evaluation(model);
  for (std::int64_t index = 0; index < options.num_tokens; ++index) {
    const auto length = std::min(static_cast<std::int64_t>(tokens.size()), model.max_seq_len());
    const Tensor context = to_device(
        Tensor::from<std::int64_t>(std::span(tokens).last(static_cast<std::size_t>(length)),
                                   {1, length}, MemoryCategory::Data),
        model.device());
    const Tensor logits_1TV = model.logits(models::one_document(context));
    const std::vector<double> last = views::narrow(logits_1TV, 1, length - 1, 1).to_vector();
    const Philox random = philox(static_cast<std::uint64_t>(index), 0x73616d706c65, options.seed);
    const std::int64_t next = draw(last, options, to_unit_interval(random.word[0]));
    tokens.push_back(next);
    if (!emit(next)) {
      return;
    }
  }
}

}  // namespace fsdptrain::tools
