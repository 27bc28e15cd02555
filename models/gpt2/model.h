#pragma once

#include <memory>
#include <vector>

#include "models/common/decoder.h"
#include "models/gpt2/config.h"
#include "runtime/nn/dropout.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/layer_norm.h"
#include "runtime/nn/linear.h"

// GPT-2 as single-device code; parameter names are those of the published checkpoints.
//
// Shape suffixes: B samples, T positions, C features, H heads, D features of a head.
namespace fsdptrain::models {

class Gpt2Attention final : public PlacedModule {
 public:
  explicit Gpt2Attention(const Gpt2Config& config);

 private:
  Tensor forward_at(const Tensor& x_BTC, const TokenPlaces& places) override;

  std::int64_t num_heads_;
  std::int64_t window_;
  nn::Linear c_attn_;
  nn::Linear c_proj_;
};

class Gpt2FeedForward final : public nn::Module {
 public:
  explicit Gpt2FeedForward(const Gpt2Config& config);

 private:
  Tensor forward(const Tensor& x_BTC) override;

  nn::Linear c_fc_;
  nn::Linear c_proj_;
};

class Gpt2Block final : public PlacedModule {
 public:
  Gpt2Block(const Gpt2Config& config, std::int64_t layer);

 private:
  Tensor forward_at(const Tensor& x_BTC, const TokenPlaces& places) override;

  nn::LayerNorm ln_1_;
  Gpt2Attention attn_;
  nn::LayerNorm ln_2_;
  Gpt2FeedForward mlp_;
  nn::Dropout attn_dropout_;
  nn::Dropout mlp_dropout_;
};

// Built on meta: an owner of its parameters (shard::ParamGroup) gives it memory and first values.
class Gpt2 final : public Decoder {
 public:
  explicit Gpt2(const Gpt2Config& config);

  std::vector<nn::Module*> blocks() override;
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t max_seq_len() const override { return config_.max_seq_len; }

 private:
  Tensor hidden(const TokenRows& rows) override;
  // The head is tied to the token embedding.
  const Tensor& head_weight() const override { return wte_.weight(); }

  Gpt2Config config_;
  nn::Embedding wte_;
  nn::Embedding wpe_;
  nn::Dropout dropout_;
  std::vector<std::unique_ptr<Gpt2Block>> h_;
  nn::LayerNorm ln_f_;
};

}  // namespace fsdptrain::models
