#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/common/decoder.h"

namespace fsdptrain::tools {

struct SamplingOptions {
  std::int64_t num_tokens = 0;
  // 0: always the most likely token.
  double temperature = 1;
  // Only the most likely ones; 0: all.
  std::int64_t top_k = 0;
  std::uint64_t seed = 0;
};

// Continues `tokens` (at least one), handing on each new token; the model sees the last
// max_seq_len() of them. The same seed gives the same tokens.
// Error as draw().
void sample(models::Decoder& model, std::vector<std::int64_t> tokens,
            const SamplingOptions& options, const std::function<void(std::int64_t)>& emit);

// Draws from softmax(logits / temperature) by one uniform number in (0, 1). Error if a logit is NaN
// or +infinity, or none is finite.
std::int64_t draw(std::vector<double> logits, double temperature, std::int64_t top_k,
                  double uniform);

}  // namespace fsdptrain::tools
