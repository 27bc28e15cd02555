#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdptrain::models {

// The shape of a Llama (Touvron et al., arXiv 2302.13971; Llama team, "The Llama 3 herd of models",
// arXiv 2407.21783).
struct LlamaConfig {
  std::int64_t vocab_size = 128256;
  std::int64_t max_seq_len = 131072;
  std::int64_t num_layers = 16;
  std::int64_t num_heads = 32;
  // Of keys and values; each serves num_heads / num_kv_heads query heads.
  std::int64_t num_kv_heads = 8;
  std::int64_t embed_dim = 2048;
  std::int64_t head_dim = 64;
  std::int64_t ffn_dim = 8192;
  double norm_eps = 1e-5;
  bool tie_embeddings = false;
  // Tokens that a token sees, itself included; 0: all before it.
  std::int64_t window = 0;
  double rope_theta = 500000;
  // Stretch of the wavelengths (runtime/ops/rotary.h).
  enum class RopeScaling { None, Linear, Llama3 };
  RopeScaling rope_scaling = RopeScaling::None;
  double rope_factor = 1;
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  std::int64_t rope_original_seq_len = 8192;

  // ConfigError naming the field where sizes do not fit.
  void validate() const;
};

// The published sizes: "llama3-1b", "llama3-8b", "llama3-70b".
std::vector<std::string_view> llama_preset_names();
// Empty for other names.
std::optional<LlamaConfig> llama_preset(std::string_view name);

}  // namespace fsdptrain::models
