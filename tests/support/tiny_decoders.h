#pragma once

#include <cstdint>

#include "models/gpt2/model.h"
#include "models/llama/model.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/transfer.h"

// Decoders that train in milliseconds, and what ranks train them on.
namespace fsdptrain::testing {

constexpr std::int64_t kTinyVocabulary = 61;

inline models::Gpt2Config tiny_gpt2() {
  return {.vocab_size = kTinyVocabulary,
          .max_seq_len = 12,
          .num_layers = 3,
          .num_heads = 3,
          .embed_dim = 12,
          .dropout = 0.1};
}

inline models::LlamaConfig tiny_llama(bool tied) {
  models::LlamaConfig config;
  config.vocab_size = kTinyVocabulary;
  config.max_seq_len = 12;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.embed_dim = 12;
  config.head_dim = 6;
  config.ffn_dim = 20;
  config.tie_embeddings = tied;
  return config;
}

inline Tensor tiny_tokens(int rank, int batch) {
  const Tensor tokens = Tensor::empty({2, 9}, DType::Int64);
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    const auto key = static_cast<std::uint64_t>(10 * batch + rank);
    tokens.mutable_values<std::int64_t>()[static_cast<std::size_t>(i)] =
        philox(static_cast<std::uint64_t>(i), key, 4).word[0] % kTinyVocabulary;
  }
  return tokens;
}

// Of batch number `batch` of a rank, whose dropout is that of no other.
inline Tensor tiny_loss(models::Decoder& model, int rank, int batch,
                        ops::HeadForm form = ops::HeadForm::Recompute,
                        Device device = Device::cpu()) {
  RandomKeys& random = current_context().random;
  random.step = static_cast<std::uint64_t>(batch);
  random.first_sample = static_cast<std::uint64_t>(2 * rank);
  return model.loss(models::one_document(to_device(tiny_tokens(rank, batch), device)),
                    to_device(tiny_tokens(rank, batch + 50), device),
                    {.loss_scale = 0.1, .form = form});
}

}  // namespace fsdptrain::testing
