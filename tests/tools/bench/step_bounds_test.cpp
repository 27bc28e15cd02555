#include "tools/bench/step_bounds.h"

#include <doctest/doctest.h>

#include "comm/meta/meta_ranks.h"
#include "runtime/base/rank_context.h"
#include "tools/bench/process_memory.h"
#include "tools/model/presets.h"
#include "tools/model/summary.h"
#include "tools/train/flops.h"

namespace fsdptrain::tools {
namespace {

TEST_SUITE_BEGIN("tools/bench/step_bounds");

Config tiny(const char* family) {
  Config config;
  config.model.name = family;
  config.model.num_layers = 3;
  config.model.num_heads = 4;
  config.model.num_kv_heads = 2;
  config.model.embed_dim = 64;
  config.model.head_dim = 24;
  config.model.ffn_dim = 120;
  config.model.vocab_size = 50;
  config.train.micro_batch = 2;
  config.train.global_batch = 2;
  config.train.seq_len = 128;
  return config;
}

TEST_CASE("a position sees those before it, within the window") {
  for (const std::int64_t window : {0, 1, 2, 7, 23, 100}) {
    CAPTURE(window);
    double pairs = 0;
    for (std::int64_t query = 0; query < 23; ++query) {
      for (std::int64_t key = 0; key <= query; ++key) {
        pairs += window == 0 || query - key < window ? 1 : 0;
      }
    }
    CHECK(visible_pairs(23, window) == pairs);
  }
}

TEST_CASE("attention counts 7 products over the pairs and features that it has") {
  for (const char* const family : {"gpt2", "llama"}) {
    CAPTURE(family);
    Config config = tiny(family);
    const double features = family_of(family) == "llama" ? 4 * 24 : 64;
    const double linears = 6 * multiplying_weights(config.model) * 2 * 128;
    CHECK(step_flops(config) == linears + 7 * 3 * 2 * features * 128 * 129);
    config.model.window = 16;
    CHECK(step_flops(config) == linears + 7 * 3 * 2 * features * (2 * 16 * 128 - 16 * 15));
  }
}

TEST_CASE("what the memory bound takes for a layer is what a layer keeps, for both families") {
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  for (const char* const family : {"gpt2", "llama"}) {
    CAPTURE(family);
    const Config config = tiny(family);
    const auto activations = [](Config sized, std::int64_t layers) {
      sized.model.num_layers = layers;
      return static_cast<double>(
          step_memory(sized, comm::MetaRanks(0, 1).group()).peak_of(MemoryCategory::Activation));
    };
    const double kept = (activations(config, 6) - activations(config, 3)) / (3 * 2 * 128 * 4);
    CHECK(kept <= kept_floats(config.model));
    CHECK(kept >= 0.9 * kept_floats(config.model));
    CHECK(memory_bound(config, 1000) ==
          16'000 + 3 * 2 * 128 * 4 * kept_floats(config.model) + 300 * kMiB);
  }
  // That of the demand: 17 widths.
  CHECK(kept_floats(*preset_model("gpt2-124m")) == 17 * 768);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
