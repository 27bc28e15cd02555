#include "tools/train/flops.h"

#include "tools/train/model_sizes.h"

namespace fsdptrain::tools {
namespace {

// Sizes of a configuration may overflow 64 bits together.
double product_of(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

}  // namespace

double multiplying_weights(const ModelConfig& model) {
  double weights_of_block = 0;
  for (const LinearSizes& linear : block_linears(model)) {
    weights_of_block += product_of(linear.in, linear.out);
  }
  return static_cast<double>(model.num_layers) * weights_of_block +
         product_of(model.vocab_size, model.embed_dim);
}

double flops_per_token(const Config& config) {
  const ModelConfig& model = config.model;
  return 6 * multiplying_weights(model) +
         12 * static_cast<double>(model.num_layers) *
             product_of(model.num_heads, model_sizes(model).head_dim) *
             static_cast<double>(config.train.seq_len);
}

}  // namespace fsdptrain::tools
