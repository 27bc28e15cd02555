#include "tools/model_presets.h"

#include <string>

#include "models/gpt2/config.h"

namespace fsdptrain::tools {

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names{"gpt2"};
  const auto presets = models::gpt2_preset_names();
  names.insert(names.end(), presets.begin(), presets.end());
  return names;
}

std::optional<ModelConfig> preset_model(std::string_view name) {
  const auto preset = models::gpt2_preset(name);
  if (!preset) {
    return std::nullopt;
  }
  ModelConfig model;
  model.name = std::string(name);
  model.num_layers = preset->num_layers;
  model.num_heads = preset->num_heads;
  model.embed_dim = preset->embed_dim;
  model.vocab_size = preset->vocab_size;
  model.max_seq_len = preset->max_seq_len;
  model.bias = preset->bias;
  return model;
}

}  // namespace fsdptrain::tools
