#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/common/decoder.h"
#include "models/llama/config.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/linear.h"
#include "runtime/nn/rms_norm.h"

// Llama 2 and 3 as single-device code; parameter names are those of Hugging Face's checkpoints.
//
// Shape suffixes: B samples, T positions, C features, H query heads, D features of a head, F
// features inside the feed-forward part, X packed heads.
namespace fsdptrain::models {

class LlamaAttention final : public PlacedModule {
 public:
  // `frequencies` of the rotary positions outlive this object.
  LlamaAttention(const LlamaConfig& config, std::span<const double> frequencies);

 private:
  Tensor forward_at(const Tensor& x_BTC, const TokenPlaces& places) override;

  std::int64_t num_heads_;
  std::int64_t num_kv_heads_;
  std::int64_t window_;
  std::span<const double> frequencies_;
  // Adjacent, and multiplied as one.
  Tensor q_proj_;
  Tensor k_proj_;
  Tensor v_proj_;
  nn::Linear o_proj_;
};

// SwiGLU: down(silu(gate(x)) * up(x)).
class LlamaFeedForward final : public nn::Module {
 public:
  explicit LlamaFeedForward(const LlamaConfig& config);

 private:
  Tensor forward(const Tensor& x_BTC) override;

  // Adjacent, and multiplied as one.
  Tensor gate_proj_;
  Tensor up_proj_;
  nn::Linear down_proj_;
};

class LlamaBlock final : public PlacedModule {
 public:
  LlamaBlock(const LlamaConfig& config, std::span<const double> frequencies);

 private:
  Tensor forward_at(const Tensor& x_BTC, const TokenPlaces& places) override;

  nn::RmsNorm input_layernorm_;
  LlamaAttention self_attn_;
  nn::RmsNorm post_attention_layernorm_;
  LlamaFeedForward mlp_;
};

// Built on meta: an owner of its parameters (shard::ParamGroup) gives it memory and first values.
class Llama final : public Decoder {
 public:
  explicit Llama(const LlamaConfig& config);

  std::vector<nn::Module*> blocks() override;
  nn::Module* untied_embedding() override { return lm_head_ ? &embed_tokens_ : nullptr; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t max_seq_len() const override { return config_.max_seq_len; }

 private:
  Tensor hidden(const TokenRows& rows) override;
  const Tensor& head_weight() const override {
    return lm_head_ ? lm_head_->weight() : embed_tokens_.weight();
  }

  LlamaConfig config_;
  std::vector<double> frequencies_;
  nn::Embedding embed_tokens_;
  std::vector<std::unique_ptr<LlamaBlock>> layers_;
  nn::RmsNorm norm_;
  // None where the head is tied to the token embedding.
  std::optional<nn::Linear> lm_head_;
};

}  // namespace fsdptrain::models
