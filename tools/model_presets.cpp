#include "tools/model_presets.h"

#include <algorithm>
#include <array>
#include <string>

namespace fsdptrain::tools {
namespace {

struct Gpt2Size {
  std::string_view name;
  std::int64_t num_layers;
  std::int64_t num_heads;
  std::int64_t embed_dim;
};

// Radford et al., "Language models are unsupervised multitask learners" (2019), table 2, under
// the parameter counts of the released models.
constexpr std::array<Gpt2Size, 4> kGpt2Sizes{{
    {"gpt2-124m", 12, 12, 768},
    {"gpt2-350m", 24, 16, 1024},
    {"gpt2-774m", 36, 20, 1280},
    {"gpt2-1558m", 48, 25, 1600},
}};

}  // namespace

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names{"gpt2"};
  for (const Gpt2Size& size : kGpt2Sizes) {
    names.push_back(size.name);
  }
  return names;
}

std::optional<ModelConfig> preset_model(std::string_view name) {
  const auto* const size = std::ranges::find(kGpt2Sizes, name, &Gpt2Size::name);
  if (size == kGpt2Sizes.end()) {
    return std::nullopt;
  }
  ModelConfig model;
  model.name = std::string(name);
  model.num_layers = size->num_layers;
  model.num_heads = size->num_heads;
  model.embed_dim = size->embed_dim;
  model.vocab_size = 50257;
  model.max_seq_len = 1024;
  model.bias = true;
  return model;
}

}  // namespace fsdptrain::tools
