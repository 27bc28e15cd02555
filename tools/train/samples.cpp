#include "tools/train/samples.h"

#include "runtime/base/error.h"
#include "runtime/data/byte_text.h"
#include "tools/generate/byte_prompt.h"
#include "tools/generate/sampler.h"

namespace fsdptrain::tools {

void check_prompts(const EvalConfig& config, std::string_view tokenizer) {
  check<ConfigError>(config.prompts.empty() || tokenizer == data::kByteTokenizer,
                     "eval.prompts: samples are of the tokenizer \"{}\" only, the tokens are of "
                     "\"{}\": leave the key out",
                     data::kByteTokenizer, tokenizer);
}

std::string sample_text(models::Decoder& model, const std::string& prompt, const EvalConfig& config,
                        std::uint64_t seed, const std::function<bool()>& stops) {
  std::string text;
  sample(
      model, byte_tokens(prompt),
      {.num_tokens = config.sample_tokens, .temperature = config.sample_temperature, .seed = seed},
      [&](std::int64_t token) {
        text += text_of_byte_token(token);
        return !stops();
      });
  return text;
}

}  // namespace fsdptrain::tools
