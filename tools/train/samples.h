#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "models/common/decoder.h"
#include "tools/config/config.h"

// Texts that a model in training makes of eval.prompts.
namespace fsdptrain::tools {

// ConfigError where there are prompts and the tokens are not bytes.
void check_prompts(const EvalConfig& config, std::string_view tokenizer);

// What the model adds to a prompt, as `fsdptrain generate` would with this seed and the model's
// weights; cut short where `stops` says so. Changes nothing that training sees.
std::string sample_text(models::Decoder& model, const std::string& prompt, const EvalConfig& config,
                        std::uint64_t seed, const std::function<bool()>& stops);

}  // namespace fsdptrain::tools
