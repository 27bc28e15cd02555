#include "tools/train/flops.h"

#include <string>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "tools/model/presets.h"
#include "tools/train/from_config.h"

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/train/flops");

// By the model as it is built: its matrices but for the embeddings, the head once, tied or not.
double matrices_of(const Config& config) {
  const auto model = build_model(config);
  double weights = static_cast<double>(config.model.vocab_size * config.model.embed_dim);
  for (const nn::Parameter& parameter : model->parameters()) {
    const bool embeds_or_head = parameter.name == "wte.weight" || parameter.name == "wpe.weight" ||
                                parameter.name == "model.embed_tokens.weight" ||
                                parameter.name == "lm_head.weight";
    if (parameter.tensor->dims() == 2 && !embeds_or_head) {
      weights += static_cast<double>(parameter.tensor->numel());
    }
  }
  return weights;
}

Config tiny(const std::string& family) {
  Config config;
  config.model.name = family;
  config.model.num_layers = 3;
  config.model.num_heads = 5;
  config.model.embed_dim = 70;
  config.model.vocab_size = 101;
  config.train.seq_len = 11;
  return config;
}

TEST_CASE("the weights that multiply are the matrices of the model, and the head, tied or not") {
  RankContext context;
  const ContextGuard guard(context);
  for (const char* const family : {"gpt2", "llama"}) {
    for (const bool tied : {false, true}) {
      CAPTURE(family);
      CAPTURE(tied);
      Config config = tiny(family);
      config.model.tie_embeddings = tied;
      CHECK(multiplying_weights(config.model) == matrices_of(config));
      CHECK(flops_per_token(config) == 6 * matrices_of(config) + 12.0 * 3 * 70 * 11);
    }
  }
  Config config;
  config.model = *preset_model("gpt2-124m");
  CHECK(multiplying_weights(config.model) == matrices_of(config));
  // 124.44 M parameters less the positions, norms and biases.
  CHECK(multiplying_weights(config.model) == 123'532'032);
}

TEST_CASE("sizes of a Llama's own change its operations, and not those of a GPT-2") {
  RankContext context;
  const ContextGuard guard(context);
  for (const char* const family : {"gpt2", "llama"}) {
    CAPTURE(family);
    const Config plain = tiny(family);
    Config sized = plain;
    sized.model.num_kv_heads = 1;
    sized.model.head_dim = 6;
    sized.model.ffn_dim = 33;
    const bool is_llama = family == std::string("llama");
    const double heads = is_llama ? 5 * 6 : 70;
    CHECK(flops_per_token(sized) == 6 * matrices_of(sized) + 12.0 * 3 * heads * 11);
    CHECK((flops_per_token(sized) == flops_per_token(plain)) == !is_llama);
  }
}

TEST_CASE("published models have the numbers of weights and operations that are published") {
  Config config;
  config.model = *preset_model("gpt2-124m");
  config.train.seq_len = 1024;
  // 6 * 123.5 M + 12 * 12 * 768 * 1024
  CHECK(flops_per_token(config) == 741'192'192.0 + 113'246'208.0);
  // 8.03 B parameters: 7.50 B of them multiply, the rest is the embedding, and norms.
  config.model = *preset_model("llama3-8b");
  CHECK(multiplying_weights(config.model) == 7'504'658'432.0);
  config.train.seq_len = 8192;
  CHECK(flops_per_token(config) == 6 * 7'504'658'432.0 + 12.0 * 32 * 32 * 128 * 8192);
}

TEST_CASE("sizes that a configuration leaves to the model are those the model takes") {
  Config config;
  config.model.name = "llama";
  config.model.num_layers = 2;
  config.model.num_heads = 4;
  config.model.embed_dim = 96;
  config.model.vocab_size = 11;
  // ffn_dim: 8/3 * 96 is 256.
  CHECK(multiplying_weights(config.model) == 2 * (4 * 96.0 * 96 + 3 * 96 * 256) + 11 * 96);
  config.model.num_kv_heads = 2;
  config.model.head_dim = 10;
  config.model.ffn_dim = 7;
  CHECK(multiplying_weights(config.model) ==
        2 * (96.0 * 40 + 2 * 96 * 20 + 40 * 96 + 3 * 96 * 7) + 11 * 96);
  config.train.seq_len = 3;
  CHECK(flops_per_token(config) == 6 * multiplying_weights(config.model) + 12 * 2 * 40 * 3);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
