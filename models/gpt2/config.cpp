#include "models/gpt2/config.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/error.h"

namespace fsdptrain::models {
namespace {

struct Preset {
  std::string_view name;
  std::int64_t num_layers, num_heads, embed_dim;
};

// Table 2 of the paper, under the parameter counts of the released models.
constexpr Preset kPresets[] = {{"gpt2-124m", 12, 12, 768},
                               {"gpt2-350m", 24, 16, 1024},
                               {"gpt2-774m", 36, 20, 1280},
                               {"gpt2-1558m", 48, 25, 1600}};

}  // namespace

void Gpt2Config::validate() const {
  const auto positive = [](const char* field, std::int64_t value) {
    check<ConfigError>(value > 0, "gpt2: {} must be positive, got {}", field, value);
  };
  positive("vocab_size", vocab_size);
  positive("max_seq_len", max_seq_len);
  positive("num_layers", num_layers);
  positive("num_heads", num_heads);
  positive("embed_dim", embed_dim);
  check<ConfigError>(embed_dim % num_heads == 0,
                     "gpt2: embed_dim must be a multiple of num_heads, got {} and {}", embed_dim,
                     num_heads);
  check<ConfigError>(window >= 0, "gpt2: window must not be negative, got {}", window);
  check<ConfigError>(dropout >= 0 && dropout < 1, "gpt2: dropout must be in [0, 1), got {}",
                     dropout);
}

std::vector<std::string_view> gpt2_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) {
    names.push_back(preset.name);
  }
  return names;
}

std::optional<Gpt2Config> gpt2_preset(std::string_view name) {
  const auto* const found = std::ranges::find(kPresets, name, &Preset::name);
  if (found == std::end(kPresets)) {
    return std::nullopt;
  }
  Gpt2Config config;
  config.num_layers = found->num_layers;
  config.num_heads = found->num_heads;
  config.embed_dim = found->embed_dim;
  return config;
}

}  // namespace fsdptrain::models
