#include "tools/model/presets.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "models/gpt2/config.h"
#include "models/llama/config.h"

namespace fsdptrain::tools {
namespace {

ModelConfig gpt2_model(const models::Gpt2Config& preset) {
  ModelConfig model;
  model.num_layers = preset.num_layers;
  model.num_heads = preset.num_heads;
  model.embed_dim = preset.embed_dim;
  model.vocab_size = preset.vocab_size;
  model.max_seq_len = preset.max_seq_len;
  model.norm_eps = preset.norm_eps;
  model.bias = preset.bias;
  return model;
}

ModelConfig llama_model(const models::LlamaConfig& preset) {
  ModelConfig model;
  model.num_layers = preset.num_layers;
  model.num_heads = preset.num_heads;
  model.num_kv_heads = preset.num_kv_heads;
  model.embed_dim = preset.embed_dim;
  model.head_dim = preset.head_dim;
  model.ffn_dim = preset.ffn_dim;
  model.vocab_size = preset.vocab_size;
  model.max_seq_len = preset.max_seq_len;
  model.norm_eps = preset.norm_eps;
  model.tie_embeddings = preset.tie_embeddings;
  model.rope_theta = preset.rope_theta;
  model.rope_scaling = "llama3";
  model.rope_factor = preset.rope_factor;
  model.rope_low_freq_factor = preset.rope_low_freq_factor;
  model.rope_high_freq_factor = preset.rope_high_freq_factor;
  model.rope_original_seq_len = preset.rope_original_seq_len;
  return model;
}

}  // namespace

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const std::string_view family : {"gpt2", "llama"}) {
    std::ranges::copy(names_of_family(family), std::back_inserter(names));
  }
  return names;
}

std::string_view family_of(std::string_view name) {
  return name.starts_with("llama") ? "llama" : "gpt2";
}

std::vector<std::string_view> names_of_family(std::string_view family) {
  std::vector<std::string_view> names{family};
  std::ranges::copy(family == "llama" ? models::llama_preset_names() : models::gpt2_preset_names(),
                    std::back_inserter(names));
  return names;
}

std::optional<ModelConfig> preset_model(std::string_view name) {
  std::optional<ModelConfig> model;
  if (const auto gpt2 = models::gpt2_preset(name)) {
    model = gpt2_model(*gpt2);
  } else if (const auto llama = models::llama_preset(name)) {
    model = llama_model(*llama);
  }
  if (model) {
    model->name = std::string(name);
  }
  return model;
}

}  // namespace fsdptrain::tools
