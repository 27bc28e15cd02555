#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "models/gpt2/model.h"
#include "runtime/base/rank_context.h"
#include "runtime/optim/adamw.h"
#include "tests/support/sharded_decoder.h"
#include "tools/bench/step_model.h"
#include "tools/train/train_step.h"

namespace fsdptrain::testing {

inline models::Gpt2Config tiny_gpt2() {
  models::Gpt2Config config;
  config.vocab_size = 101;
  config.max_seq_len = 40;
  config.num_layers = 2;
  config.num_heads = 3;
  config.embed_dim = 48;
  config.dropout = 0.1;
  return config;
}

// One model in training on a device.
struct Gpt2Run {
  Gpt2Run(const models::Gpt2Config& config, Device device, DType compute,
          nn::Recompute recompute = nn::Recompute::None)
      : vocab(config.vocab_size),
        ranks(device),
        model(config),
        sharded(shard_decoder(model, ranks.group(),
                              {.dtype = compute == DType::Float64 ? compute : DType::Float32,
                               .compute = compute,
                               .seed = 3})),
        optimizer(sharded->chunks(), {}),
        step(model, *sharded, optimizer, {.grad_clip = 1.0}) {
    current_context().random.seed = 3;
    model.set_block_recompute(recompute);
  }

  // One step of two micro-batches.
  tools::TrainStep::Result train(std::uint64_t number, std::int64_t rows, std::int64_t seq_len) {
    const data::Batch batches[] = {
        tools::random_batch(rows, seq_len, vocab, 2 * number * static_cast<std::uint64_t>(rows)),
        tools::random_batch(rows, seq_len, vocab,
                            (2 * number + 1) * static_cast<std::uint64_t>(rows))};
    return train(batches, number, 1e-3);
  }
  tools::TrainStep::Result train(std::span<const data::Batch> batches, std::uint64_t number,
                                 double lr) {
    auto result = step.forward_backward(batches, number);
    step.update(lr);
    return result;
  }

  std::int64_t vocab;
  LoneRanks ranks;
  models::Gpt2 model;
  std::unique_ptr<shard::ShardedModel> sharded;
  optim::AdamW optimizer;
  tools::TrainStep step;
};

}  // namespace fsdptrain::testing
