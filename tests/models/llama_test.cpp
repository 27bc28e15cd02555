#include <algorithm>

#include <doctest/doctest.h>

#include "models/llama/model.h"
#include "runtime/base/error.h"
#include "tests/support/golden_model.h"

using namespace fsdptrain;
using fsdptrain::testing::Golden;

namespace {

models::LlamaConfig golden_config(const Golden& golden) {
  models::LlamaConfig config;
  config.vocab_size = golden.integer("vocab_size");
  config.max_seq_len = golden.integer("max_position_embeddings");
  config.num_layers = golden.integer("num_hidden_layers");
  config.num_heads = golden.integer("num_attention_heads");
  config.num_kv_heads = golden.integer("num_key_value_heads");
  config.embed_dim = golden.integer("hidden_size");
  config.head_dim = golden.integer("head_dim");
  config.ffn_dim = golden.integer("intermediate_size");
  config.norm_eps = golden.number("rms_norm_eps");
  config.tie_embeddings = golden.text("tie_word_embeddings") == "True";
  config.window = golden.integer("window");
  config.rope_theta = golden.number("rope_theta");
  config.rope_factor = golden.number("factor");
  if (golden.text("rope_type") == "linear") {
    config.rope_scaling = models::LlamaConfig::RopeScaling::Linear;
    return config;
  }
  config.rope_scaling = models::LlamaConfig::RopeScaling::Llama3;
  config.rope_low_freq_factor = golden.number("low_freq_factor");
  config.rope_high_freq_factor = golden.number("high_freq_factor");
  config.rope_original_seq_len = golden.integer("original_max_position_embeddings");
  return config;
}

void compare(const std::string& file, DType dtype, nn::Recompute recompute = nn::Recompute::None) {
  const Golden golden(file + "." + std::string(name_of(dtype)) + ".safetensors");
  testing::compare_with_pytorch<models::Llama>(golden_config(golden), golden, golden, true, dtype,
                                               recompute);
}

std::int64_t count_parameters(const models::LlamaConfig& config) {
  const models::Llama model(config);
  std::int64_t numel = 0;
  for (const nn::Parameter& parameter : model.parameters()) {
    numel += parameter.tensor->numel();
  }
  return numel;
}

}  // namespace

TEST_SUITE("models/llama") {
  TEST_CASE("logits, loss and every gradient equal PyTorch's in float64") {
    compare("llama_tiny", DType::Float64);
    compare("llama_tied", DType::Float64);
  }

  TEST_CASE("logits, loss and every gradient equal PyTorch's in float32") {
    compare("llama_tiny", DType::Float32);
    compare("llama_tied", DType::Float32);
  }

  TEST_CASE("recomputed blocks give PyTorch's gradients too") {
    compare("llama_tiny", DType::Float64, nn::Recompute::Selective);
    compare("llama_tiny", DType::Float64, nn::Recompute::Full);
  }

  TEST_CASE("fifty AdamW steps in float64 follow PyTorch's losses") {
    const Golden weights("llama_tiny.float64.safetensors");
    const Golden golden("llama_tiny.adamw.safetensors");
    testing::follow_adamw<models::Llama>(golden_config(weights), weights, golden, true);
  }

  TEST_CASE("names are those of Hugging Face's checkpoints, a tied head has none") {
    models::LlamaConfig config = golden_config(Golden("llama_tiny.float64.safetensors"));
    const auto names = [&config] {
      const models::Llama model(config);
      std::vector<std::string> all;
      for (const nn::Parameter& parameter : model.parameters()) {
        all.push_back(parameter.name);
      }
      return all;
    };
    const std::vector<std::string> untied = names();
    CHECK(untied.size() == 21);
    for (const char* name :
         {"model.embed_tokens.weight", "model.layers.1.input_layernorm.weight",
          "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
          "model.layers.1.self_attn.v_proj.weight", "model.layers.1.self_attn.o_proj.weight",
          "model.layers.1.post_attention_layernorm.weight", "model.layers.1.mlp.gate_proj.weight",
          "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight",
          "model.norm.weight", "lm_head.weight"}) {
      CAPTURE(name);
      CHECK(std::ranges::count(untied, name) == 1);
    }
    config.tie_embeddings = true;
    CHECK(names().size() == 20);
    CHECK(std::ranges::count(names(), "lm_head.weight") == 0);
  }

  TEST_CASE("what is multiplied as one lies side by side, as parameters of their own") {
    models::LlamaConfig config = golden_config(Golden("llama_tiny.float64.safetensors"));
    // No multiple of the granule that parameters start on otherwise.
    config.embed_dim = 34;
    config.ffn_dim = 47;
    models::Llama model(config);
    testing::FlatParameters parameters(model, {});
    const auto follows = [&](const std::string& name, const std::string& next) {
      const Tensor& first = parameters.find(name).values;
      const Tensor& second = parameters.find(next).values;
      return second.storage() == first.storage() &&
             second.offset() == first.offset() + first.numel();
    };
    const std::string layer = "model.layers.1.";
    CHECK(follows(layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight"));
    CHECK(follows(layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight"));
    CHECK(follows(layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight"));
  }

  TEST_CASE("no gradient is added element by element: every product writes its slot") {
    models::Llama model(golden_config(Golden("llama_tiny.float64.safetensors")));
    testing::FlatParameters parameters(model, {});
    const Tensor tokens = Tensor::zeros({2, 7}, DType::Int64);
    const auto stats = autograd::backward(model.loss(models::one_document(tokens), tokens, {}));
    CHECK(stats.slot_elements_added == 0);
  }

  TEST_CASE("projections that end a branch start smaller, by the number of branches") {
    models::Llama model(golden_config(Golden("llama_tiny.float64.safetensors")));
    testing::FlatParameters parameters(model, {});
    // Of 1536 values, known to 1.8 %; two layers have four branches.
    const auto is_deviation = [&](const std::string& name, double expected) {
      const Tensor& values = parameters.find("model.layers.0." + name).values;
      const double actual = testing::norm(values) / std::sqrt(static_cast<double>(values.numel()));
      return std::abs(actual / expected - 1) < 0.08;
    };
    for (const char* name : {"self_attn.q_proj.weight", "mlp.up_proj.weight"}) {
      CHECK(is_deviation(name, 0.02));
    }
    for (const char* name : {"self_attn.o_proj.weight", "mlp.down_proj.weight"}) {
      CHECK(is_deviation(name, 0.02 / std::sqrt(4.0)));
    }
    CHECK(parameters.find("model.norm.weight").values.item(3) == 1);
  }

  TEST_CASE("the published sizes have the published numbers of parameters") {
    CHECK(count_parameters(*models::llama_preset("llama3-1b")) == 1235814400);
    CHECK(count_parameters(*models::llama_preset("llama3-8b")) == 8030261248);
    CHECK(count_parameters(*models::llama_preset("llama3-70b")) == 70553706496);
    CHECK_FALSE(models::llama_preset("llama3-405b").has_value());
  }

  TEST_CASE("sizes that do not fit are refused by name") {
    models::LlamaConfig config;
    config.num_kv_heads = 5;
    CHECK_THROWS_WITH_AS(
        models::Llama{config},
        doctest::Contains("num_heads must be a multiple of num_kv_heads, got 32 and 5"),
        ConfigError);
    config = {};
    config.head_dim = 7;
    CHECK_THROWS_WITH_AS(models::Llama{config}, doctest::Contains("head_dim must be even"),
                         ConfigError);
  }

  TEST_CASE("more positions than the model has are refused") {
    models::LlamaConfig config = golden_config(Golden("llama_tiny.float64.safetensors"));
    config.max_seq_len = 6;
    models::Llama model(config);
    testing::FlatParameters parameters(model, {});
    CHECK_THROWS_WITH_AS(model.logits(models::one_document(Tensor::zeros({1, 7}, DType::Int64))),
                         doctest::Contains("at most 6 positions], got [1, 7]"), ShapeError);
  }
}
