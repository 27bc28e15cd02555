#include "tools/model/summary.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/lone_world.h"
#include "comm/meta/meta_ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tools/train/flops.h"
#include "tools/train/from_config.h"

namespace fsdptrain::tools {
namespace {

constexpr const char* kTinyGpt2 = R"(
[model]
num_layers = 2
num_heads = 3
embed_dim = 48
vocab_size = 101
max_seq_len = 40
dropout = 0.1
[train]
global_batch = 6
micro_batch = 3
seq_len = 37
)";

constexpr const char* kTinyLlama = R"(
[model]
name = "llama"
num_layers = 2
num_heads = 4
num_kv_heads = 2
embed_dim = 48
head_dim = 10
ffn_dim = 80
vocab_size = 101
max_seq_len = 40
window = 9
[train]
global_batch = 6
micro_batch = 3
seq_len = 37
)";

MemoryCounters measure(const Config& config, Device device) {
  RankContext context({.threads = 2});
  const ContextGuard guard(context);
  if (device == Device::meta()) {
    return step_memory(config, comm::MetaRanks(0, 1).group());
  }
  comm::LoneWorld alone;
  return step_memory(config, alone.world().group());
}

std::vector<std::string> names_of(const std::vector<ParameterRow>& rows) {
  std::vector<std::string> names;
  for (const ParameterRow& row : rows) {
    names.push_back(row.name);
  }
  return names;
}

}  // namespace

TEST_SUITE("tools/model_summary") {
  TEST_CASE("a step on meta counts the bytes of a real one exactly, whatever family and policy") {
    for (const char* model : {kTinyGpt2, kTinyLlama}) {
      for (const char* recompute : {"none", "selective", "full"}) {
        for (const char* dtype : {"float32", "bfloat16"}) {
          CAPTURE(model);
          CAPTURE(recompute);
          CAPTURE(dtype);
          const std::vector<std::string> overrides{std::string("train.recompute=") + recompute,
                                                   std::string("train.compute_dtype=") + dtype};
          const Config config = parse_config(model, "test", overrides);
          const MemoryCounters planned = measure(config, Device::meta());
          const MemoryCounters real = measure(config, Device::cpu());
          CHECK(planned.live == real.live);
          CHECK(planned.peak == real.peak);
          CHECK(planned == real);
          CHECK(real.peak_of(MemoryCategory::Activation) > 0);
        }
      }
    }
  }

  TEST_CASE(
      "an average of the weights takes 4 bytes for each that is trained, on meta as in fact") {
    const std::string text = std::string(kTinyLlama) + R"(
[[rules]]
match = "model.embed_tokens.*"
freeze = true
)";
    const Config without = parse_config(text, "test");
    const Config with = parse_config(text, "test", std::vector<std::string>{"train.ema_decay=0.9"});
    std::int64_t trained = 0;
    for (const ParameterRow& row : parameter_rows(with, false)) {
      trained += row.trained ? row.num_parameters() : 0;
    }
    const MemoryCounters planned = measure(with, Device::meta());
    CHECK(planned == measure(with, Device::cpu()));
    const auto more = planned.peak_of(MemoryCategory::Optimizer) -
                      measure(without, Device::meta()).peak_of(MemoryCategory::Optimizer);
    // Each unit has a block of memory of its own, which is rounded up.
    CHECK(more >= 4 * trained);
    CHECK(static_cast<double>(more) < 4.3 * static_cast<double>(trained));
  }

  TEST_CASE("frozen bfloat16 blocks take a fraction of the memory, on meta as in fact") {
    const std::string text = std::string(kTinyLlama) + R"(
compute_dtype = "bfloat16"
[[rules]]
match = "model.layers.*"
freeze = true
dtype = "bfloat16"
)";
    const Config frozen = parse_config(text, "test");
    Config trained = frozen;
    trained.rules.clear();
    CHECK(measure(frozen, Device::meta()) == measure(frozen, Device::cpu()));
    const auto of = [](const Config& config, MemoryCategory category) {
      return static_cast<double>(measure(config, Device::meta()).peak_of(category));
    };
    // Of 36 k parameters, 26 k are in the blocks: 2 bytes each instead of 4.
    CHECK(of(frozen, MemoryCategory::Parameter) < 0.7 * of(trained, MemoryCategory::Parameter));
    CHECK(of(frozen, MemoryCategory::Gradient) < 0.35 * of(trained, MemoryCategory::Gradient));
    CHECK(of(frozen, MemoryCategory::Optimizer) < 0.35 * of(trained, MemoryCategory::Optimizer));
  }

  TEST_CASE("blocks that are alike are one row, those under another rule another") {
    Config config = parse_config(kTinyGpt2, "test");
    config.model.num_layers = 12;
    auto rows = parameter_rows(config, true);
    CHECK(rows.size() == 2 + 12 + 2);
    CHECK(rows[2].name == "h.{0-11}.ln_1.weight");
    CHECK(rows[2].count == 12);
    CHECK(rows[2].num_parameters() == 12 * 48);
    CHECK_FALSE(rows[2].decay);
    CHECK(rows.front().name == "wte.weight");
    CHECK(rows.back().name == "ln_f.bias");
    CHECK(parameter_rows(config, false).size() == 2 + 12 * 12 + 2);

    config.rules = {{.match = "h.3.*", .freeze = true, .dtype = "bfloat16"},
                    {.match = "h.11.mlp.c_fc.weight", .lr_scale = 0.5}};
    rows = parameter_rows(config, true);
    const auto names = names_of(rows);
    CHECK(rows.size() == 16 + 12 + 1);
    const auto at = [&](const std::string& name) {
      const auto found = std::ranges::find(rows, name, &ParameterRow::name);
      REQUIRE(found != rows.end());
      return *found;
    };
    CHECK(at("h.{0-2,4-11}.ln_1.weight").count == 11);
    CHECK_FALSE(at("h.3.ln_1.weight").trained);
    CHECK(at("h.3.ln_1.weight").dtype == DType::BFloat16);
    CHECK(at("h.{0-2,4-10}.mlp.c_fc.weight").trained);
    CHECK(at("h.11.mlp.c_fc.weight").lr_scale == 0.5);
  }

  TEST_CASE("the operations per token are those of the matrices that the model has") {
    for (const char* text : {kTinyGpt2, kTinyLlama}) {
      Config config = parse_config(text, "test");
      for (const bool defaults : {false, true}) {
        if (defaults) {
          config.model.num_kv_heads = config.model.head_dim = config.model.ffn_dim = 0;
        }
        double matrices = 0;
        for (const ParameterRow& row : parameter_rows(config, false)) {
          const bool embeds = row.name == "wpe.weight" || row.name == "model.embed_tokens.weight";
          if (row.shape.dims() == 2 && !embeds) {
            matrices += static_cast<double>(row.num_parameters());
          }
        }
        const double head_dim =
            config.model.head_dim != 0
                ? static_cast<double>(config.model.head_dim)
                : static_cast<double>(config.model.embed_dim / config.model.num_heads);
        const double attention =
            12.0 * 2 * static_cast<double>(config.model.num_heads) * head_dim * 37;
        CHECK(flops_per_token(config) == 6 * matrices + attention);
      }
    }
  }
}

}  // namespace fsdptrain::tools
