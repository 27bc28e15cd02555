#include "models/llama/config.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/error.h"

namespace fsdptrain::models {
namespace {

struct Preset {
  std::string_view name;
  std::int64_t num_layers, num_heads, num_kv_heads, embed_dim, head_dim, ffn_dim;
  bool tie_embeddings;
  double rope_factor;
};

// Llama 3.2 1B, and Llama 3.1 8B and 70B, from the configuration files of the releases.
constexpr Preset kPresets[] = {{"llama3-1b", 16, 32, 8, 2048, 64, 8192, true, 32},
                               {"llama3-8b", 32, 32, 8, 4096, 128, 14336, false, 8},
                               {"llama3-70b", 80, 64, 8, 8192, 128, 28672, false, 8}};

}  // namespace

void LlamaConfig::validate() const {
  const auto positive = [](const char* field, std::int64_t value) {
    check<ConfigError>(value > 0, "llama: {} must be positive, got {}", field, value);
  };
  positive("vocab_size", vocab_size);
  positive("max_seq_len", max_seq_len);
  positive("num_layers", num_layers);
  positive("num_heads", num_heads);
  positive("num_kv_heads", num_kv_heads);
  positive("embed_dim", embed_dim);
  positive("head_dim", head_dim);
  positive("ffn_dim", ffn_dim);
  check<ConfigError>(num_heads % num_kv_heads == 0,
                     "llama: num_heads must be a multiple of num_kv_heads, got {} and {}",
                     num_heads, num_kv_heads);
  check<ConfigError>(head_dim % 2 == 0, "llama: head_dim must be even, for rotary pairs, got {}",
                     head_dim);
  check<ConfigError>(window >= 0, "llama: window must not be negative, got {}", window);
}

std::vector<std::string_view> llama_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) {
    names.push_back(preset.name);
  }
  return names;
}

std::optional<LlamaConfig> llama_preset(std::string_view name) {
  const auto* const found = std::ranges::find(kPresets, name, &Preset::name);
  if (found == std::end(kPresets)) {
    return std::nullopt;
  }
  LlamaConfig config;
  config.num_layers = found->num_layers;
  config.num_heads = found->num_heads;
  config.num_kv_heads = found->num_kv_heads;
  config.embed_dim = found->embed_dim;
  config.head_dim = found->head_dim;
  config.ffn_dim = found->ffn_dim;
  config.tie_embeddings = found->tie_embeddings;
  config.rope_scaling = LlamaConfig::RopeScaling::Llama3;
  config.rope_factor = found->rope_factor;
  return config;
}

}  // namespace fsdptrain::models
