#include "tools/bench/step_bounds.h"

#include <algorithm>

#include "tools/bench/process_memory.h"
#include "tools/bench/products.h"
#include "tools/train/model_sizes.h"

namespace fsdptrain::tools {
namespace {

std::int64_t tokens_of(const Config& config) {
  return config.train.micro_batch * config.train.seq_len;
}

}  // namespace

bool is_model_of_record(const Config& config) {
  return config.model.name == "gpt2-124m" && config.model.dropout == 0 &&
         config.train.compute_dtype == "float32" && config.train.recompute == "none" &&
         config.optimizer.name == "adamw";
}

double step_flops(const Config& config) {
  double flops = 0;
  for (const Product& product : step_products(config.model, tokens_of(config))) {
    flops += product.flops();
  }
  const std::int64_t features = config.model.num_heads * model_sizes(config.model).head_dim;
  return flops + 7.0 * 2 * static_cast<double>(config.model.num_layers * config.train.micro_batch) *
                     static_cast<double>(features) *
                     visible_pairs(config.train.seq_len, config.model.window);
}

double visible_pairs(std::int64_t seq_len, std::int64_t window) {
  const std::int64_t seen = window > 0 ? std::min(window, seq_len) : seq_len;
  // The first `seen` positions lack some.
  return static_cast<double>(seen * seq_len) - static_cast<double>(seen * (seen - 1)) / 2;
}

double memory_bound(const Config& config, std::int64_t num_parameters) {
  return 16.0 * static_cast<double>(num_parameters) +
         4.0 * static_cast<double>(config.model.num_layers * tokens_of(config)) *
             kept_floats(config.model) +
         300 * kMiB;
}

double kept_floats(const ModelConfig& model) {
  const auto [attention_in, attention_out, forward_in, forward_out] = block_linears(model);
  return static_cast<double>(attention_in.out + attention_out.in + forward_in.out + forward_out.in +
                             5 * model.embed_dim);
}

}  // namespace fsdptrain::tools
