#include "tools/train/model_sizes.h"

#include "tools/model/presets.h"

namespace fsdptrain::tools {

ModelSizes model_sizes(const ModelConfig& model) {
  ModelSizes sizes{.num_kv_heads = model.num_heads,
                   .head_dim = model.embed_dim / model.num_heads,
                   .ffn_dim = 4 * model.embed_dim};
  if (family_of(model.name) != "llama") {
    return sizes;
  }
  // 8/3 of embed_dim, rounded up to a multiple of 256.
  sizes.ffn_dim = model.ffn_dim != 0 ? model.ffn_dim : (8 * model.embed_dim + 767) / 768 * 256;
  if (model.num_kv_heads != 0) {
    sizes.num_kv_heads = model.num_kv_heads;
  }
  if (model.head_dim != 0) {
    sizes.head_dim = model.head_dim;
  }
  return sizes;
}

std::array<LinearSizes, 4> block_linears(const ModelConfig& model) {
  const bool is_llama = family_of(model.name) == "llama";
  const ModelSizes sizes = model_sizes(model);
  const std::int64_t width = model.embed_dim;
  const std::int64_t heads = model.num_heads * sizes.head_dim;
  const std::int64_t qkv = heads + 2 * sizes.num_kv_heads * sizes.head_dim;
  return {
      LinearSizes{is_llama ? "qkv_proj" : "c_attn", width, qkv},
      LinearSizes{is_llama ? "o_proj" : "attn_proj", heads, width},
      LinearSizes{is_llama ? "gate_up_proj" : "c_fc", width, (is_llama ? 2 : 1) * sizes.ffn_dim},
      LinearSizes{is_llama ? "down_proj" : "mlp_proj", sizes.ffn_dim, width}};
}

}  // namespace fsdptrain::tools
