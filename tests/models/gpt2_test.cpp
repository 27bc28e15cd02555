#include <doctest/doctest.h>

#include "models/gpt2/model.h"
#include "runtime/base/error.h"
#include "tests/support/golden_model.h"

using namespace fsdptrain;
using fsdptrain::testing::Golden;
using fsdptrain::testing::GoldenModel;

namespace {

models::Gpt2Config golden_config(const Golden& golden) {
  models::Gpt2Config config;
  config.vocab_size = golden.integer("vocab_size");
  config.max_seq_len = golden.integer("n_positions");
  config.embed_dim = golden.integer("n_embd");
  config.num_layers = golden.integer("n_layer");
  config.num_heads = golden.integer("n_head");
  config.norm_eps = golden.number("layer_norm_epsilon");
  return config;
}

}  // namespace

TEST_SUITE("models/gpt2") {
  TEST_CASE("logits, loss and every gradient equal PyTorch's in float64") {
    const Golden golden("gpt2_tiny.float64.safetensors");
    CHECK(models::Gpt2(golden_config(golden)).parameters().size() == 28);
    testing::compare_with_pytorch<models::Gpt2>(golden_config(golden), golden, golden, false,
                                                DType::Float64);
  }

  TEST_CASE("logits, loss and every gradient equal PyTorch's in float32") {
    const Golden golden("gpt2_tiny.float32.safetensors");
    testing::compare_with_pytorch<models::Gpt2>(golden_config(golden), golden, golden, false,
                                                DType::Float32);
  }

  TEST_CASE("on rows of several documents and with a window they equal PyTorch's too") {
    const Golden weights("gpt2_tiny.float64.safetensors");
    const Golden golden("gpt2_tiny.documents.safetensors");
    models::Gpt2Config config = golden_config(golden);
    config.window = golden.integer("window");
    for (const nn::Recompute recompute :
         {nn::Recompute::None, nn::Recompute::Selective, nn::Recompute::Full}) {
      testing::compare_with_pytorch<models::Gpt2>(config, weights, golden, true, DType::Float64,
                                                  recompute);
    }
  }

  TEST_CASE("fifty AdamW steps in float64 follow PyTorch's losses") {
    const Golden weights("gpt2_tiny.float64.safetensors");
    const Golden golden("gpt2_tiny.adamw.safetensors");
    testing::follow_adamw<models::Gpt2>(golden_config(weights), weights, golden, false);
  }

  TEST_CASE("the published sizes have the published numbers of parameters") {
    const auto count = [](const char* name) {
      models::Gpt2 model(*models::gpt2_preset(name));
      std::int64_t numel = 0;
      for (const nn::Parameter& parameter : model.parameters()) {
        numel += parameter.tensor->numel();
      }
      return numel;
    };
    CHECK(count("gpt2-124m") == 124439808);
    CHECK(count("gpt2-350m") == 354823168);
    CHECK(count("gpt2-774m") == 774030080);
    CHECK(count("gpt2-1558m") == 1557611200);
    CHECK_FALSE(models::gpt2_preset("gpt2-7b").has_value());
  }

  TEST_CASE("sizes that do not fit are refused by name") {
    models::Gpt2Config config;
    config.num_heads = 7;
    CHECK_THROWS_WITH_AS(
        models::Gpt2{config},
        doctest::Contains("embed_dim must be a multiple of num_heads, got 768 and 7"), ConfigError);
    config = {};
    config.num_layers = 0;
    CHECK_THROWS_WITH_AS(models::Gpt2{config}, doctest::Contains("num_layers must be positive"),
                         ConfigError);
  }

  TEST_CASE("more positions than the model has, or a token beyond the vocabulary, is an error") {
    const Golden golden("gpt2_tiny.float32.safetensors");
    GoldenModel<models::Gpt2> golden_model(golden_config(golden), golden, DType::Float32);
    CHECK_THROWS_WITH_AS(
        golden_model.model.logits(models::one_document(Tensor::zeros({1, 25}, DType::Int64))),
        doctest::Contains("at most 24 positions], got [1, 25]"), ShapeError);
    CHECK_THROWS_WITH_AS(
        golden_model.model.logits(models::one_document(Tensor::full({1, 3}, 61, DType::Int64))),
        doctest::Contains("wte: embedding"), ShapeError);
    models::TokenRows rows = models::one_document(Tensor::zeros({1, 3}, DType::Int64));
    rows.positions_BT.set_item(2, 24);
    CHECK_THROWS_WITH_AS(golden_model.model.logits(rows), doctest::Contains("wpe: embedding"),
                         ShapeError);
    rows.positions_BT = Tensor::zeros({1, 4}, DType::Int64);
    CHECK_THROWS_WITH_AS(golden_model.model.logits(rows),
                         doctest::Contains("must have the shape [1, 3] of the tokens, got [1, 4]"),
                         ShapeError);
  }
}
