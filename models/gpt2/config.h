#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdptrain::models {

// The shape of a GPT-2 (Radford et al., "Language models are unsupervised multitask learners").
struct Gpt2Config {
  std::int64_t vocab_size = 50257;
  std::int64_t max_seq_len = 1024;
  std::int64_t num_layers = 12;
  std::int64_t num_heads = 12;
  std::int64_t embed_dim = 768;
  double dropout = 0;  // on embeddings and on both residual branches
  bool bias = true;
  double norm_eps = 1e-5;
  // Tokens that a token sees, itself included; 0: all before it.
  std::int64_t window = 0;

  // ConfigError naming the field where sizes do not fit.
  void validate() const;
};

// The published sizes: "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m".
std::vector<std::string_view> gpt2_preset_names();
// Empty for other names.
std::optional<Gpt2Config> gpt2_preset(std::string_view name);

}  // namespace fsdptrain::models
