#pragma once

#include <cstdint>

#include "tools/config/config.h"

namespace fsdptrain::tools {

// Whether the demands on speed are made for steps of this model, however many tokens they have.
bool is_model_of_record(const Config& config);

// Operations that a step takes: its products, and attention, which is 2 products forward and 5
// backward over the pairs of positions that see each other.
double step_flops(const Config& config);

// The pairs of a position and one that it sees in causal attention: itself and those before it, the
// last `window` of them where this is positive.
double visible_pairs(std::int64_t seq_len, std::int64_t window);

// The bytes that a step in float32 without recomputation should not pass: parameters, gradients and
// two moments; what a layer keeps of every token; the rest.
double memory_bound(const Config& config, std::int64_t num_parameters);

// The floats among them that a layer keeps of a token: the results of linears and of what stands
// between them, and two norms with the residual sums and one more of the width.
double kept_floats(const ModelConfig& model);

}  // namespace fsdptrain::tools
