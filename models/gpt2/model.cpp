#include "models/gpt2/model.h"

#include <cmath>
#include <string>

#include "runtime/base/error.h"
#include "runtime/ops/arithmetic.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/view.h"

namespace fsdptrain::models {
namespace {

constexpr double kStandardDeviation = 0.02;

// Projections that end a residual branch start smaller, so that the sum of 2 L branches does not
// grow with the depth.
double residual_deviation(const Gpt2Config& config) {
  return kStandardDeviation / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

// Numbers the dropouts of the model: three to a layer, the first belongs to the embeddings.
std::uint64_t dropout_site(std::int64_t layer, int which) {
  return static_cast<std::uint64_t>(3 * (layer + 1) + which);
}

const Gpt2Config& validated(const Gpt2Config& config) {
  config.validate();
  return config;
}

}  // namespace

Gpt2Attention::Gpt2Attention(const Gpt2Config& config)
    : num_heads_(config.num_heads),
      c_attn_({.in = config.embed_dim,
               .out = 3 * config.embed_dim,
               .bias = config.bias,
               .standard_deviation = kStandardDeviation}),
      c_proj_({.in = config.embed_dim,
               .out = config.embed_dim,
               .bias = config.bias,
               .standard_deviation = residual_deviation(config)}) {
  register_module("c_attn", c_attn_);
  register_module("c_proj", c_proj_);
}

Tensor Gpt2Attention::forward(const Tensor& x_BTC) {
  const Tensor out_BTHD =
      ops::packed_attention(c_attn_(x_BTC), {.num_heads = num_heads_, .num_kv_heads = num_heads_})
          .out;
  return c_proj_(ops::reshape(out_BTHD, x_BTC.shape()));
}

Gpt2FeedForward::Gpt2FeedForward(const Gpt2Config& config)
    : c_fc_({.in = config.embed_dim,
             .out = 4 * config.embed_dim,
             .bias = config.bias,
             .standard_deviation = kStandardDeviation}),
      c_proj_({.in = 4 * config.embed_dim,
               .out = config.embed_dim,
               .bias = config.bias,
               .standard_deviation = residual_deviation(config)}) {
  register_module("c_fc", c_fc_);
  register_module("c_proj", c_proj_);
}

Tensor Gpt2FeedForward::forward(const Tensor& x_BTC) {
  return c_proj_(c_fc_.gelu(x_BTC, ops::GeluForm::Tanh));
}

Gpt2Block::Gpt2Block(const Gpt2Config& config, std::int64_t layer)
    : ln_1_({.features = config.embed_dim, .bias = config.bias, .eps = config.norm_eps}),
      attn_(config),
      ln_2_({.features = config.embed_dim, .bias = config.bias, .eps = config.norm_eps}),
      mlp_(config),
      attn_dropout_(config.dropout, dropout_site(layer, 0)),
      mlp_dropout_(config.dropout, dropout_site(layer, 1)) {
  register_module("ln_1", ln_1_);
  register_module("attn", attn_);
  register_module("ln_2", ln_2_);
  register_module("mlp", mlp_);
  register_module("attn_dropout", attn_dropout_);
  register_module("mlp_dropout", mlp_dropout_);
}

Tensor Gpt2Block::forward(const Tensor& x_BTC) {
  const auto [h_BTC, normalized_BTC] = ln_2_.add(x_BTC, attn_dropout_(attn_(ln_1_(x_BTC))));
  return ops::add(h_BTC, mlp_dropout_(mlp_(normalized_BTC)));
}

Gpt2::Gpt2(const Gpt2Config& config)
    : config_(validated(config)),
      wte_({.vocabulary = config.vocab_size, .features = config.embed_dim}),
      wpe_({.vocabulary = config.max_seq_len, .features = config.embed_dim}),
      dropout_(config.dropout, dropout_site(-1, 0)),
      ln_f_({.features = config.embed_dim, .bias = config.bias, .eps = config.norm_eps}) {
  register_module("wte", wte_);
  register_module("wpe", wpe_);
  register_module("dropout", dropout_);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    register_module("h." + std::to_string(layer),
                    *h_.emplace_back(std::make_unique<Gpt2Block>(config, layer)));
  }
  register_module("ln_f", ln_f_);
}

std::vector<nn::Module*> Gpt2::blocks() {
  std::vector<nn::Module*> blocks;
  for (const auto& block : h_) {
    blocks.push_back(block.get());
  }
  return blocks;
}

Tensor Gpt2::hidden(const TokenRows& rows) {
  const Tensor& tokens_BT = rows.tokens_BT;
  check<ShapeError>(tokens_BT.dims() == 2 && tokens_BT.size(1) <= config_.max_seq_len,
                    "gpt2: tokens must be [batch, at most {} positions], got {}",
                    config_.max_seq_len, tokens_BT.shape());
  const Tensor positions_TC = ops::narrow(wpe_.weight(), 0, 0, tokens_BT.size(1));
  Tensor x_BTC = dropout_(ops::add(wte_(tokens_BT), positions_TC));
  for (const auto& block : h_) {
    x_BTC = (*block)(x_BTC);
  }
  return ln_f_(x_BTC);
}

}  // namespace fsdptrain::models
