#include "models/llama/model.h"

#include <array>
#include <cmath>
#include <string>

#include "runtime/base/error.h"
#include "runtime/ops/activation.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/rotary.h"
#include "runtime/ops/view.h"

namespace fsdptrain::models {
namespace {

constexpr double kStandardDeviation = 0.02;

// Projections that end a residual branch start smaller, so that the sum of 2 L branches does not
// grow with the depth.
double residual_deviation(const LlamaConfig& config) {
  return kStandardDeviation / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

nn::ParameterSpec projection() {
  return {.init = nn::Init::normal(kStandardDeviation)};
}

const LlamaConfig& validated(const LlamaConfig& config) {
  config.validate();
  return config;
}

std::vector<double> frequencies_of(const LlamaConfig& config) {
  ops::RotaryScaling scaling{.factor = config.rope_factor,
                             .low_freq_factor = config.rope_low_freq_factor,
                             .high_freq_factor = config.rope_high_freq_factor,
                             .original_max_position = config.rope_original_seq_len};
  switch (config.rope_scaling) {
    case LlamaConfig::RopeScaling::None:
      break;
    case LlamaConfig::RopeScaling::Linear:
      scaling.kind = ops::RotaryScaling::Kind::Linear;
      break;
    case LlamaConfig::RopeScaling::Llama3:
      scaling.kind = ops::RotaryScaling::Kind::Llama3;
      break;
  }
  return ops::rotary_frequencies(config.head_dim, config.rope_theta, scaling);
}

}  // namespace

LlamaAttention::LlamaAttention(const LlamaConfig& config, std::span<const double> frequencies)
    : num_heads_(config.num_heads),
      num_kv_heads_(config.num_kv_heads),
      window_(config.window),
      frequencies_(frequencies),
      q_proj_(nn::unplaced_parameter({config.num_heads * config.head_dim, config.embed_dim})),
      k_proj_(nn::unplaced_parameter({config.num_kv_heads * config.head_dim, config.embed_dim})),
      v_proj_(nn::unplaced_parameter({config.num_kv_heads * config.head_dim, config.embed_dim})),
      o_proj_({.in = config.num_heads * config.head_dim,
               .out = config.embed_dim,
               .bias = false,
               .standard_deviation = residual_deviation(config)}) {
  register_parameter("q_proj.weight", q_proj_, projection());
  register_parameter("k_proj.weight", k_proj_, projection());
  register_parameter("v_proj.weight", v_proj_, projection());
  register_adjacent({"q_proj.weight", "k_proj.weight", "v_proj.weight"});
  register_module("o_proj", o_proj_);
}

Tensor LlamaAttention::forward_at(const Tensor& x_BTC, const TokenPlaces& places) {
  const Tensor qkv_BTX =
      ops::linear(x_BTC, ops::stack_adjacent(std::array{q_proj_, k_proj_, v_proj_}));
  const Tensor turned_BTX =
      ops::packed_rotary(qkv_BTX, num_heads_ + num_kv_heads_, places.positions_BT, frequencies_);
  const Tensor out_BTHD =
      ops::packed_attention(turned_BTX, {.num_heads = num_heads_, .num_kv_heads = num_kv_heads_},
                            {.document_ids = places.document_ids_BT, .window = window_})
          .out;
  return o_proj_(ops::reshape(out_BTHD, {x_BTC.size(0), x_BTC.size(1), -1}));
}

LlamaFeedForward::LlamaFeedForward(const LlamaConfig& config)
    : gate_proj_(nn::unplaced_parameter({config.ffn_dim, config.embed_dim})),
      up_proj_(nn::unplaced_parameter({config.ffn_dim, config.embed_dim})),
      down_proj_({.in = config.ffn_dim,
                  .out = config.embed_dim,
                  .bias = false,
                  .standard_deviation = residual_deviation(config)}) {
  register_parameter("gate_proj.weight", gate_proj_, projection());
  register_parameter("up_proj.weight", up_proj_, projection());
  register_adjacent({"gate_proj.weight", "up_proj.weight"});
  register_module("down_proj", down_proj_);
}

Tensor LlamaFeedForward::forward(const Tensor& x_BTC) {
  const Tensor gate_up = ops::linear(x_BTC, ops::stack_adjacent(std::array{gate_proj_, up_proj_}));
  return down_proj_(ops::packed_silu_mul(gate_up));
}

LlamaBlock::LlamaBlock(const LlamaConfig& config, std::span<const double> frequencies)
    : input_layernorm_({.features = config.embed_dim, .eps = config.norm_eps}),
      self_attn_(config, frequencies),
      post_attention_layernorm_({.features = config.embed_dim, .eps = config.norm_eps}),
      mlp_(config) {
  register_module("input_layernorm", input_layernorm_);
  register_module("self_attn", self_attn_);
  register_module("post_attention_layernorm", post_attention_layernorm_);
  register_module("mlp", mlp_);
}

Tensor LlamaBlock::forward_at(const Tensor& x_BTC, const TokenPlaces& places) {
  const auto [h_BTC, normalized_BTC] =
      post_attention_layernorm_.add(x_BTC, self_attn_(input_layernorm_(x_BTC), places));
  return ops::add(h_BTC, mlp_(normalized_BTC));
}

Llama::Llama(const LlamaConfig& config)
    : config_(validated(config)),
      frequencies_(frequencies_of(config)),
      embed_tokens_({.vocabulary = config.vocab_size,
                     .features = config.embed_dim,
                     .standard_deviation = kStandardDeviation}),
      norm_({.features = config.embed_dim, .eps = config.norm_eps}) {
  register_module("model.embed_tokens", embed_tokens_);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    register_module("model.layers." + std::to_string(layer),
                    *layers_.emplace_back(std::make_unique<LlamaBlock>(config, frequencies_)));
  }
  register_module("model.norm", norm_);
  if (!config.tie_embeddings) {
    lm_head_.emplace(nn::Linear::Options{.in = config.embed_dim,
                                         .out = config.vocab_size,
                                         .bias = false,
                                         .standard_deviation = kStandardDeviation});
    register_module("lm_head", *lm_head_);
  }
}

std::vector<nn::Module*> Llama::blocks() {
  std::vector<nn::Module*> blocks;
  for (const auto& layer : layers_) {
    blocks.push_back(layer.get());
  }
  return blocks;
}

Tensor Llama::hidden(const TokenRows& rows) {
  Tensor x_BTC = embed_tokens_(rows.tokens_BT);
  for (const auto& layer : layers_) {
    x_BTC = (*layer)(x_BTC, rows.places());
  }
  return norm_(x_BTC);
}

}  // namespace fsdptrain::models
