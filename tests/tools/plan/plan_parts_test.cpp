#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/meta/meta_ranks.h"
#include "models/parallelize.h"
#include "runtime/autograd/engine.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tests/support/tiny_decoders.h"
#include "tools/plan/byte_size.h"
#include "tools/plan/padding.h"
#include "tools/plan/plan_facts.h"
#include "tools/plan/unit_names.h"

namespace fsdptrain::tools {
namespace {

std::string folded_names(const std::vector<std::string>& names) {
  return folded(names);
}

// The padding of a tiny model on so many ranks, and what is said about it.
struct Padding {
  double percent = 0;
  std::string warning;
};

Padding padding_on(int num_ranks) {
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  comm::MetaRanks ranks(0, num_ranks);
  models::Gpt2Config config = testing::tiny_gpt2();
  config.num_layers = 12;
  config.embed_dim = 48;
  models::Gpt2 model(config);
  shard::ShardedModel sharded(model, ranks.group(), {});
  models::parallelize(model, sharded);
  return {total_percent(padding_of(sharded)),
          padding_warning(sharded, model.blocks(), model.adjacent_parameters())};
}

}  // namespace

TEST_SUITE("tools/plan/parts") {
  TEST_CASE("amounts of memory are read with units of 1024 and of 1000, and nothing else is") {
    CHECK(parse_size("80GiB") == std::int64_t{80} << 30);
    CHECK(parse_size("24 GB") == 24'000'000'000);
    CHECK(parse_size("1.5TiB") == (std::int64_t{3} << 39));
    CHECK(parse_size("512MiB") == 512 << 20);
    CHECK(parse_size("10KB") == 10'000);
    CHECK(parse_size("4096") == 4096);
    CHECK(parse_size("0") == 0);
    for (const char* text : {"", "GiB", "80 gib", "-1GiB", "80GiBs", "nan", "inf", "1e30TiB",
                             "0x10", "80,5GiB", " 80GiB"}) {
      CAPTURE(text);
      CHECK_THROWS_WITH_AS(parse_size(text),
                           doctest::Contains("is no amount of memory: give a number and a unit"),
                           ConfigError);
    }
  }

  TEST_CASE("amounts of memory are printed with three digits") {
    CHECK(size_text(0) == "0.00 KiB");
    CHECK(size_text(1536) == "1.50 KiB");
    CHECK(size_text(42 << 20) == "42.0 MiB");
    CHECK(size_text(std::int64_t{700} << 30) == "700 GiB");
    CHECK(size_text(std::int64_t{3} << 50) == "3072 TiB");
  }

  TEST_CASE("names that count up are one, all others stay") {
    CHECK(folded_names({}) == "");
    CHECK(folded_names({"h.3"}) == "h.3");
    CHECK(folded_names({"h.0", "h.1", "h.2", "the root"}) == "h.0-2, the root");
    CHECK(folded_names(
              {"model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.5"}) ==
          "model.embed_tokens, model.layers.0-1, model.layers.5");
    CHECK(folded_names({"a.1", "b.2", "b.2"}) == "a.1, b.2, b.2");
  }

  TEST_CASE("pages of peers are those of their parameters and of this rank's part of gradients") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    for (const int rank : {0, 2}) {
      comm::MetaRanks ranks(rank, 3);
      models::Gpt2Config config = testing::tiny_gpt2();
      config.embed_dim = 96;
      models::Gpt2 model(config);
      shard::ShardedModel sharded(model, ranks.group(), {});
      models::parallelize(model, sharded);
      CHECK(peer_pages_of(sharded) == 0);
      for (int step = 0; step < 2; ++step) {
        const auto rows = [] { return Tensor::zeros({2, 9}, DType::Int64, Device::meta()); };
        autograd::backward(model.loss({rows(), rows(), rows()}, rows(), {}));
      }
      // Byte by byte of the pool.
      std::int64_t nbytes = 0;
      for (const int peer : {(rank + 1) % 3, (rank + 2) % 3}) {
        std::set<std::size_t> pages;
        for (const auto& [use, places] : sharded.pool().plan()->slots) {
          const auto chunk = static_cast<std::size_t>(
              4 * sharded.units()[use.group]->group().buffers()[0].layout().chunk_numel());
          const auto part =
              static_cast<std::size_t>(use.kind == shard::SlotKind::Parameters ? peer : rank);
          for (const shard::Slot& slot : places) {
            for (std::size_t byte = 0; byte < chunk; byte += 4) {
              pages.insert((slot.offset + part * chunk + byte) / 4096);
            }
          }
        }
        nbytes += static_cast<std::int64_t>(4096 * pages.size());
      }
      CHECK(peer_pages_of(sharded) == nbytes);
    }
  }

  TEST_CASE("padding that is more than one percent has a warning with blocks that mend it") {
    // 12 blocks of 28,272 parameters.
    CHECK(padding_on(2).warning.empty());
    CHECK(padding_on(2).percent < kMuchPadding);
    const Padding some = padding_on(16);
    CHECK(some.percent > 1);
    CHECK(some.percent < 10);
    CHECK(some.warning.find("blocks as one unit, from fully_shard({h.0, ..., h.") !=
          std::string::npos);
    const Padding much = padding_on(4096);
    CHECK(much.percent > 20);
    CHECK(much.warning.find("fewer ranks") != std::string::npos);
  }
}

}  // namespace fsdptrain::tools
