#include "tools/train/flops.h"

#include "tools/model_presets.h"

namespace fsdptrain::tools {
namespace {

// Sizes as float64: those of a configuration may overflow 64 bits together.
struct Sizes {
  double layers, heads, kv_heads, embed_dim, head_dim, ffn_dim, vocab_size;
};

Sizes sizes_of(const ModelConfig& model) {
  const std::int64_t head_dim =
      model.head_dim > 0 ? model.head_dim : model.embed_dim / model.num_heads;
  // 8/3 of embed_dim, rounded up to a multiple of 256.
  const std::int64_t ffn_dim =
      model.ffn_dim > 0 ? model.ffn_dim : (8 * model.embed_dim / 3 + 255) / 256 * 256;
  const auto size = [](std::int64_t value) { return static_cast<double>(value); };
  return {size(model.num_layers),
          size(model.num_heads),
          size(model.num_kv_heads > 0 ? model.num_kv_heads : model.num_heads),
          size(model.embed_dim),
          size(head_dim),
          size(ffn_dim),
          size(model.vocab_size)};
}

// Query, key, value and output projections.
double attention_weights(const Sizes& sizes) {
  return sizes.embed_dim * sizes.head_dim * (2 * sizes.heads + 2 * sizes.kv_heads);
}

}  // namespace

double multiplying_weights(const ModelConfig& model) {
  const Sizes sizes = sizes_of(model);
  const double feed_forward = family_of(model.name) == "llama"
                                  ? 3 * sizes.embed_dim * sizes.ffn_dim
                                  : 8 * sizes.embed_dim * sizes.embed_dim;
  return sizes.layers * (attention_weights(sizes) + feed_forward) +
         sizes.vocab_size * sizes.embed_dim;
}

double flops_per_token(const Config& config) {
  const Sizes sizes = sizes_of(config.model);
  return 6 * multiplying_weights(config.model) + 12 * sizes.layers * sizes.heads * sizes.head_dim *
                                                     static_cast<double>(config.train.seq_len);
}

}  // namespace fsdptrain::tools
