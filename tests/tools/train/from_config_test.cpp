#include "tools/train/from_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "models/gpt2/model.h"
#include "models/llama/model.h"
#include "runtime/autograd/engine.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "tests/support/sharded_decoder.h"
#include "tests/support/temporary_folder.h"
#include "tools/train/weights.h"

namespace fsdptrain::tools {
namespace {

using doctest::Contains;

constexpr const char* kLlama = R"(
[model]
name = "llama"
num_layers = 3
num_heads = 4
num_kv_heads = 2
embed_dim = 48
head_dim = 10
ffn_dim = 80
vocab_size = 101
max_seq_len = 40
window = 3
norm_eps = 0.01
tie_embeddings = true
rope_theta = 100.0
rope_scaling = "llama3"
rope_factor = 4.0
rope_low_freq_factor = 1.5
rope_high_freq_factor = 3.0
rope_original_seq_len = 20
)";

constexpr const char* kGpt2 = R"(
[model]
num_layers = 3
num_heads = 3
embed_dim = 48
vocab_size = 101
max_seq_len = 40
window = 3
norm_eps = 0.01
bias = false
)";

models::TokenRows some_rows() {
  Tensor tokens = Tensor::zeros({2, 23}, DType::Int64);
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.set_item(i, static_cast<double>(i * 37 % 101));
  }
  return models::one_document(tokens);
}

// With weights larger than those of a new model, so that nothing is lost in rounding.
std::vector<double> logits_of(models::Decoder& model, const Config& config) {
  testing::LoneRanks ranks;
  const auto sharded = shard_model(config, model, ranks.group());
  for (const shard::ParameterPart& part : shard::parts_of(*sharded)) {
    Tensor values = part.values();
    for (std::int64_t i = 0; part.shape.dims() == 2 && i < values.numel(); ++i) {
      values.set_item(i, 10 * values.item(i));
    }
  }
  sharded->bump_epoch();
  const autograd::NoGradGuard no_grad;
  return model.logits(some_rows()).to_vector();
}

std::vector<double> logits_of(const Config& config) {
  return logits_of(*build_model(config), config);
}

Shape shape_of(const models::Decoder& model, const std::string& name) {
  const auto parameters = model.parameters();
  const auto found = std::ranges::find(parameters, name, &nn::Parameter::name);
  REQUIRE(found != parameters.end());
  return found->tensor->shape();
}

std::int64_t replays_of(const Config& config) {
  const auto model = build_model(config);
  testing::LoneRanks ranks;
  const auto sharded = shard_model(config, *model, ranks.group());
  const models::TokenRows rows = some_rows();
  return static_cast<std::int64_t>(
      autograd::backward(model->loss(rows, rows.tokens_BT, {})).replays);
}

}  // namespace

TEST_SUITE("tools/train/from_config") {
  TEST_CASE("every key of the section reaches a Llama") {
    models::LlamaConfig expected;
    expected.num_layers = 3;
    expected.num_heads = 4;
    expected.num_kv_heads = 2;
    expected.embed_dim = 48;
    expected.head_dim = 10;
    expected.ffn_dim = 80;
    expected.vocab_size = 101;
    expected.max_seq_len = 40;
    expected.window = 3;
    expected.norm_eps = 0.01;
    expected.tie_embeddings = true;
    expected.rope_theta = 100;
    expected.rope_scaling = models::LlamaConfig::RopeScaling::Llama3;
    expected.rope_factor = 4;
    expected.rope_low_freq_factor = 1.5;
    expected.rope_high_freq_factor = 3;
    expected.rope_original_seq_len = 20;
    models::Llama model(expected);
    const Config config =
        parse_config(kLlama, "test", std::vector<std::string>{"train.seq_len=37"});
    const auto logits = logits_of(model, config);
    CHECK(logits_of(config) == logits);
    // That each of these matters here.
    for (const char* change :
         {"model.window=4", "model.norm_eps=0.02", "model.rope_theta=90.0",
          "model.rope_scaling=linear", "model.rope_scaling=none", "model.rope_factor=5.0",
          "model.rope_low_freq_factor=1.2", "model.rope_high_freq_factor=3.5",
          "model.rope_original_seq_len=25"}) {
      CAPTURE(change);
      const std::vector<std::string> overrides{"train.seq_len=37", change};
      CHECK(logits_of(parse_config(kLlama, "test", overrides)) != logits);
    }
  }

  TEST_CASE("window, norm_eps and the other keys reach a GPT-2") {
    models::Gpt2Config expected;
    expected.num_layers = 3;
    expected.num_heads = 3;
    expected.embed_dim = 48;
    expected.vocab_size = 101;
    expected.max_seq_len = 40;
    expected.window = 3;
    expected.norm_eps = 0.01;
    expected.bias = false;
    models::Gpt2 model(expected);
    const Config config = parse_config(kGpt2, "test", std::vector<std::string>{"train.seq_len=37"});
    const auto logits = logits_of(model, config);
    CHECK(logits_of(config) == logits);
    for (const char* change : {"model.window=4", "model.norm_eps=0.02"}) {
      CAPTURE(change);
      const std::vector<std::string> overrides{"train.seq_len=37", change};
      CHECK(logits_of(parse_config(kGpt2, "test", overrides)) != logits);
    }
  }

  TEST_CASE("sizes of 0 are those that the keys' meanings say") {
    const auto model = build_model(parse_config(
        "[model]\nname = \"llama\"\nnum_heads = 4\nembed_dim = 288\nnum_layers = 1\n", "test"));
    const std::string layer = "model.layers.0.";
    CHECK(shape_of(*model, layer + "self_attn.k_proj.weight") == Shape{288, 288});
    // 8/3 * 288 = 768, a multiple of 256 already.
    CHECK(shape_of(*model, layer + "mlp.up_proj.weight") == Shape{768, 288});
    const auto wider = build_model(parse_config(
        "[model]\nname = \"llama\"\nnum_heads = 4\nembed_dim = 296\nnum_layers = 1\n", "test"));
    CHECK(shape_of(*wider, layer + "mlp.up_proj.weight") == Shape{1024, 296});
    CHECK(shape_of(*wider, "lm_head.weight") == Shape{257, 296});
  }

  TEST_CASE("a rule sets the recomputation of the blocks that hold a match") {
    Config config = parse_config(kGpt2, "test", std::vector<std::string>{"train.seq_len=37"});
    CHECK(replays_of(config) == 0);
    config.rules = {{.match = "h.1.*", .recompute = "full"}};
    CHECK(replays_of(config) == 1);
    config.rules = {{.match = "h.?.ln_1.weight", .recompute = "full"},
                    {.match = "h.2.*", .recompute = "none"}};
    CHECK(replays_of(config) == 2);
    config.train.recompute = "full";
    config.rules = {{.match = "h.0.*", .recompute = "none"}};
    CHECK(replays_of(config) == 2);
    config.rules = {{.match = "w*.weight", .recompute = "full"}};
    CHECK_THROWS_WITH_AS(build_model(config),
                         Contains("[[rules]] match = \"w*.weight\": recompute is for blocks, and "
                                  "none holds a matching parameter: match one inside a block, like "
                                  "h.0.ln_1.weight"),
                         ConfigError);
  }

  TEST_CASE("rules become the owner's, and those that match nothing are refused by name") {
    const std::string text = std::string(kLlama) + R"([train]
seq_len = 37
[[rules]]
match = "*.mlp.*"
freeze = true
dtype = "bfloat16"
[[rules]]
match = "model.norm.weight"
decay = true
lr_scale = 0.25
)";
    Config config = parse_config(text, "test");
    const auto model = build_model(config);
    testing::LoneRanks ranks;
    const auto sharded = shard_model(config, *model, ranks.group());
    const auto frozen = testing::part_of(*sharded, "model.layers.2.mlp.up_proj.weight");
    CHECK(frozen.dtype() == DType::BFloat16);
    CHECK_FALSE(frozen.chunk_number.has_value());
    const auto in_chunk = testing::part_of(*sharded, "model.norm.weight").chunk_number;
    const auto& segments = sharded->chunks().at(in_chunk.value()).segments;
    const auto norm = std::ranges::find(segments, "model.norm.weight", &nn::Segment::name);
    CHECK(norm->decay);
    CHECK(norm->lr_scale == 0.25);

    config.rules.push_back({.match = "*.attn.*", .recompute = "full"});
    CHECK_THROWS_WITH_AS(build_model(config),
                         Contains("\"*.attn.*\" matches no parameter: did you mean model.layers.*."
                                  "self_attn."),
                         ConfigError);
    config.rules = {{.match = "*", .freeze = true}};
    CHECK_THROWS_WITH_AS(build_model(config), Contains("freeze all 29 parameters, by \"*\""),
                         ConfigError);
    config.rules = {{.match = "*.q_proj.*", .freeze = true}};
    testing::LoneRanks lone;
    const auto mixed = build_model(config);
    CHECK_THROWS_WITH_AS(
        shard_model(config, *mixed, lone.group()),
        Contains("q_proj.weight and model.layers.0.self_attn.k_proj.weight are adjacent: they must "
                 "be kept, gathered and reduced in the same dtypes, and both be trained or both be "
                 "frozen"),
        ConfigError);
  }

  TEST_CASE("sizes that are beyond every machine together are refused by name") {
    Config config;
    config.model.name = "llama";
    config.model.num_layers = 10000;
    config.model.num_heads = config.model.head_dim = 65536;
    config.model.embed_dim = 1048576;
    config.model.ffn_dim = config.model.vocab_size = 16777216;
    CHECK_THROWS_WITH_AS(build_model(config), doctest::Contains("[model]: its sizes make"),
                         ConfigError);
  }

  TEST_CASE("weights with frozen bfloat16 parameters come back bit for bit") {
    Config config = parse_config(kLlama, "test", std::vector<std::string>{"train.seq_len=37"});
    config.rules = {{.match = "*.mlp.*", .freeze = true, .dtype = "bfloat16"}};
    const testing::TemporaryFolder folder;
    const auto path = folder / "weights.safetensors";
    const auto model = build_model(config);
    testing::LoneRanks ranks;
    const auto saved = shard_model(config, *model, ranks.group());
    save_weights(path, ranks.world(), *saved, {.config = config, .vocabulary = {257, 256, "byte"}});
    const WeightsInfo info = read_weights_info(path);
    CHECK(info.config.rules == config.rules);
    const auto other = build_model(info.config);
    Config other_seed = info.config;
    other_seed.run.seed = 77;
    const auto loaded = shard_model(other_seed, *other, ranks.group());
    load_weights(path, *loaded);
    for (const shard::ParameterPart& part : shard::parts_of(*saved)) {
      CHECK(std::ranges::equal(part.values().bytes(),
                               testing::values_of(*loaded, part.name).bytes()));
    }
  }
}

}  // namespace fsdptrain::tools
