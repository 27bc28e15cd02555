#include "tools/bench/step_model.h"

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"
#include "tools/bench/timing.h"
#include "tools/train/from_config.h"

namespace fsdptrain::tools {
data::Batch random_batch(std::int64_t rows, std::int64_t seq_len, std::int64_t vocab_size,
                         std::uint64_t first_sample) {
  data::Batch batch{.tokens = {},
                    .targets = {},
                    .batch = rows,
                    .seq_len = seq_len,
                    .first_sample = first_sample,
                    .num_targets = rows * seq_len};
  const auto token = [vocab_size](std::uint32_t word) {
    return static_cast<std::int64_t>(word) % vocab_size;
  };
  for (std::int64_t i = 0; i < rows * seq_len; ++i) {
    const Philox random = philox(static_cast<std::uint64_t>(i), first_sample, 1);
    batch.tokens.push_back(token(random.word[0]));
    batch.targets.push_back(token(random.word[1]));
    batch.positions.push_back(i % seq_len);
    batch.document_ids.push_back(0);
  }
  return batch;
}

StepModel::StepModel(const Config& config)
    : model_(build_model(config)),
      sharded_(shard_model(config, *model_, alone_.world().group())),
      optimizer_(build_optimizer(config.optimizer, sharded_->chunks())),
      step_(*model_, *sharded_, *optimizer_, {.grad_clip = config.train.grad_clip}),
      batch_(random_batch(config.train.micro_batch, config.train.seq_len, config.model.vocab_size)),
      lr_(config.optimizer.lr) {
  current_context().random.seed = static_cast<std::uint64_t>(config.run.seed);
}

double StepModel::run(const data::Batch& batch) {
  const Stopwatch stopwatch;
  const TrainStep::Result result = step_.forward_backward({&batch, 1}, steps_++);
  step_.update(lr_);
  const double seconds = stopwatch.seconds();
  const double loss = result.loss.item();
  check(std::isfinite(loss), "bench: step {} gave the loss {}", steps_, loss);
  return seconds;
}

}  // namespace fsdptrain::tools
