#include "tools/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace fsdptrain::tools {

std::int64_t draw(std::vector<double> logits, double temperature, std::int64_t top_k,
                  double uniform) {
  check(std::ranges::none_of(logits, [](double logit) { return std::isnan(logit); }),
        "generate: the model gives a logit of nan: its weights overflow: train again, with a lower "
        "optimizer.lr");
  const auto largest = std::ranges::max_element(logits);
  check(largest != logits.end() && std::isfinite(*largest),
        "generate: the largest logit of the model is {}: its weights overflow: train again, with a "
        "lower optimizer.lr",
        largest == logits.end() ? 0 : *largest);
  if (temperature == 0) {
    return largest - logits.begin();
  }
  if (top_k > 0 && top_k < static_cast<std::int64_t>(logits.size())) {
    std::vector<double> sorted = logits;
    std::ranges::nth_element(sorted, sorted.begin() + (top_k - 1), std::greater<>());
    const double threshold = sorted[static_cast<std::size_t>(top_k - 1)];
    for (double& logit : logits) {
      logit = logit >= threshold ? logit : -std::numeric_limits<double>::infinity();
    }
  }
  const double top = *largest;
  double total = 0;
  for (double& logit : logits) {
    logit = std::exp((logit - top) / temperature);
    total += logit;
  }
  double rest = uniform * total;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    rest -= logits[token];
    if (rest < 0) {
      return static_cast<std::int64_t>(token);
    }
  }
  return std::ranges::max_element(logits) - logits.begin();
}

void sample(models::Decoder& model, std::vector<std::int64_t> tokens,
            const SamplingOptions& options, const std::function<void(std::int64_t)>& emit) {
  check<ConfigError>(!tokens.empty(), "generate: the prompt needs at least one token");
  const autograd::NoGradGuard no_grad;
  model.set_training(false);
  for (std::int64_t index = 0; index < options.num_tokens; ++index) {
    const auto length = std::min(static_cast<std::int64_t>(tokens.size()), model.max_seq_len());
    const Tensor context =
        Tensor::from<std::int64_t>(std::span(tokens).last(static_cast<std::size_t>(length)),
                                   {1, length}, MemoryCategory::Data);
    const Tensor logits = model.logits(models::one_document(context));
    std::vector<double> last;
    for (std::int64_t token = 0; token < model.vocab_size(); ++token) {
      last.push_back(logits.item((length - 1) * model.vocab_size() + token));
    }
    const Philox random = philox(static_cast<std::uint64_t>(index), 0x73616d706c65, options.seed);
    const std::int64_t next =
        draw(std::move(last), options.temperature, options.top_k, to_unit_interval(random.word[0]));
    tokens.push_back(next);
    emit(next);
  }
}

}  // namespace fsdptrain::tools
