#include "tools/bench/step_model.h"

#include "runtime/base/random.h"

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
    : step_(config, alone_.world().group()),
      batch_(
          random_batch(config.train.micro_batch, config.train.seq_len, config.model.vocab_size)) {}

}  // namespace fsdptrain::tools
