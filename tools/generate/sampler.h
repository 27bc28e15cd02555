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
  // Only so many of the likeliest, and those as likely as the last of them; 0: all.
  std::int64_t top_k = 0;
  // Only the fewest of the likeliest that have this probability together; 1: all.
  double top_p = 1;
  std::uint64_t seed = 0;
};

// Continues `tokens` (at least one), handing on each new token until `emit` returns false; the
// model, in evaluation mode meanwhile, sees the last max_seq_len() of them. The same seed gives the
// same tokens. Error as draw().
void sample(models::Decoder& model, std::vector<std::int64_t> tokens,
            const SamplingOptions& options, const std::function<bool(std::int64_t)>& emit);

// Draws from softmax(logits / temperature), cut to top_k, then to top_p, by one uniform number in
// (0, 1). Error if a logit is NaN or +infinity, or none is finite.
std::int64_t draw(const std::vector<double>& logits, const SamplingOptions& options,
                  double uniform);

}  // namespace fsdptrain::tools
