#include "tools/train/validation.h"

#include <cmath>
#include <fmt/format.h>
#include <string>

#include "tools/generate/keep_gathered.h"
#include "tools/train/evaluation.h"
#include "tools/train/samples.h"

namespace fsdptrain::tools {

std::optional<double> Validation::loss(std::int64_t steps_done) {
  if (datasets_.validation.empty()) {
    return std::nullopt;
  }
  const Config& config = rank_.config();
  const LossTotals totals = evaluate(
      rank_.model(), datasets_.validation,
      {.batch = config.train.micro_batch, .max_batches = config.eval.batches}, world_.control());
  if (totals.num_targets == 0) {
    reporter_.warning(fmt::format(
        "validation behind step {} of {} has no target: each of its tokens ends a document",
        steps_done, config.train.steps));
    return std::nullopt;
  }
  if (std::isfinite(totals.mean())) {
    reporter_.validation(steps_done, totals.mean());
  }
  return totals.mean();
}

void Validation::samples(std::int64_t steps_done, const std::function<bool()>& stops) {
  const Config& config = rank_.config();
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  if (config.eval.prompts.empty()) {
    return;
  }
  const auto gathered = keep_gathered(rank_.sharded(), world_);
  for (const std::string& prompt : config.eval.prompts) {
    const std::string text = sample_text(rank_.model(), prompt, config.eval, seed, stops);
    if (stops()) {
      return;
    }
    reporter_.sample({.step = steps_done, .prompt = prompt, .text = text, .seed = seed});
  }
}

}  // namespace fsdptrain::tools
