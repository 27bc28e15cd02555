#pragma once

#include <string_view>

#include "tools/config/config.h"

namespace fsdptrain::tools {

// How training is counted, wherever this program states a utilisation or a number of operations:
// two operations for each weight that multiplies and three products for each of them (forward, and
// the gradients of input and weight); attention as if every token saw all tokens of its sequence.
// Recomputation counts nothing: it is work, not progress. (Chowdhery et al., "PaLM",
// arXiv 2204.02311, appendix B.)
inline constexpr std::string_view kFlopsConvention =
    "6 x weights (embeddings left out, the head counted) + 12 x layers x heads x head_dim x "
    "seq_len";

// The weights of all linear layers and of the head, tied or not.
double multiplying_weights(const ModelConfig& model);

// Floating point operations of training on one token of a sequence of train.seq_len.
double flops_per_token(const Config& config);

}  // namespace fsdptrain::tools
