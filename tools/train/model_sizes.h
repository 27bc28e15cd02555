#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tools/config/config.h"

namespace fsdptrain::tools {

// The sizes that a model takes where its configuration says 0, or what has no effect on its family.
struct ModelSizes {
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_dim = 0;
};

ModelSizes model_sizes(const ModelConfig& model);

// A matrix of weights as a step multiplies it: parameters that lie side by side are one.
struct LinearSizes {
  std::string_view name;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// Of one block: into attention and out of it, into the feed-forward part and out of it.
std::array<LinearSizes, 4> block_linears(const ModelConfig& model);

}  // namespace fsdptrain::tools
