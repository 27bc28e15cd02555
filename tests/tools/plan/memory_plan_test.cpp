#include "tools/plan/memory_plan.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/run_ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/base/rank_context.h"
#include "runtime/base/thread_pool.h"
#include "runtime/data/prepare.h"
#include "tests/support/rank_backends.h"
#include "tests/support/temporary_folder.h"
#include "tools/plan/byte_size.h"
#include "tools/plan/comparison.h"
#include "tools/train/trainer.h"

// Plans beside runs of the trainer.
namespace fsdptrain::tools {
namespace {

using testing::Backend;
using testing::TemporaryFolder;

std::string prepared_tokens(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += fmt::format("Line {} of a text that has enough of them. ", i);
  }
  testing::write_file(folder / "text", text);
  ThreadPool pool(1);
  const data::TextFile file{.path = folder / "text", .nbytes = text.size()};
  data::prepare_bytes({file}, {.output = folder / "tokens.bin"}, pool);
  return folder / "tokens.bin";
}

// Numbers that follow from a seed.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : seed_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(philox(count_++, seed_, 9).word[0]) % (most - least + 1);
  }
  std::string one_of(const std::vector<std::string>& words) {
    return words[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(words.size()) - 1))];
  }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

struct Case {
  int world = 1;
  Config config;
};

Case case_of(std::uint64_t seed, const std::string& tokens) {
  Choices choose(seed);
  Case made;
  made.world = static_cast<int>(choose.between(1, 4));
  Config& config = made.config;
  config.run.threads = 1;
  config.data.tokens = {tokens};
  config.model.name = choose.one_of({"gpt2", "llama"});
  config.model.num_layers = choose.between(1, 4);
  config.model.num_heads = 4;
  config.model.embed_dim = 8 * choose.between(1, 5);
  config.model.tie_embeddings = config.model.name == "llama" && choose.between(0, 1) == 1;
  config.model.max_seq_len = 40;
  config.model.dropout = config.model.name == "gpt2" ? 0.1 : 0;
  config.train.steps = 3;
  config.train.micro_batch = choose.between(1, 3);
  config.train.global_batch = config.train.micro_batch * made.world * choose.between(1, 5);
  config.train.seq_len = choose.between(9, 40);
  config.train.compute_dtype = choose.one_of({"float32", "bfloat16"});
  config.train.recompute = choose.one_of({"none", "selective", "full"});
  config.train.ema_decay = choose.between(0, 1) == 0 ? 0 : 0.9;
  config.train.grad_clip = choose.between(0, 1) == 0 ? 0 : 1;
  config.optimizer.name = choose.one_of({"adamw", "adamw", "sgd"});
  config.shard.reshard_after_forward = choose.one_of({"auto", "yes", "no"});
  // Replicas, or parts.
  config.mesh.replicate = choose.between(0, 4) == 0 ? made.world : 1;
  config.shard.prefetch = choose.between(0, 2);
  config.shard.reduce_dtype = choose.one_of({"float32", "bfloat16"});
  config.shard.accumulate = choose.one_of({"sharded", "sharded", "exact", "unsharded"});
  config.checkpoint.every = choose.between(0, 1);
  config.checkpoint.async = choose.between(0, 3) > 0;
  if (choose.between(0, 2) == 0) {
    config.eval.prompts = {"Line", "A"};
    config.eval.sample_tokens = choose.between(1, 40);
  }
  if (choose.between(0, 3) == 0) {
    const bool is_gpt2 = config.model.name == "gpt2";
    config.rules = {{.match = is_gpt2 ? "h.0.*" : "model.layers.0.*",
                     .freeze = true,
                     .dtype = choose.one_of({"float32", "bfloat16"})}};
  }
  return made;
}

// What each rank of a run has counted when it was over.
std::vector<MemoryCounters> run_trainer(const Case& made, Backend backend) {
  std::vector<MemoryCounters> counters(static_cast<std::size_t>(made.world));
  const StopSignals signals;
  const TemporaryFolder folder;
  comm::run_ranks(testing::thread_ranks(backend, made.world), [&](comm::World& world) {
    comm::DebugBreak debug_break({}, world.rank());
    Trainer trainer({.config = made.config,
                     .start = {.checkpoints = folder / "checkpoints"},
                     .signals = signals,
                     .account = nullptr,
                     .debug_break = debug_break},
                    world);
    CHECK(trainer.run().signal == 0);
    counters[static_cast<std::size_t>(world.rank())] =
        current_context().allocator(Device::cpu()).counters();
  });
  return counters;
}

void expect_equal_plan(const Case& made, Backend backend) {
  const std::vector<MemoryCounters> measured = run_trainer(made, backend);
  for (int rank = 0; rank < made.world; ++rank) {
    CAPTURE(rank);
    const MemoryPlan plan = plan_memory(made.config, made.world, rank);
    const MemoryCounters& counted = measured[static_cast<std::size_t>(rank)];
    CHECK(plan.memory.peak == counted.peak);
    CHECK(plan.memory.peak_total == counted.peak_total);
    CHECK(plan.memory.live == counted.live);
  }
}

}  // namespace

TEST_SUITE("tools/plan/memory_plan") {
  TEST_CASE("a plan of each rank is what the trainer counts on it, whatever the configuration") {
    const TemporaryFolder folder;
    const std::string tokens = prepared_tokens(folder);
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
      CAPTURE(seed);
      const Case made = case_of(seed, tokens);
      expect_equal_plan(made, seed % 3 == 0 ? Backend::Shm : Backend::Threads);
    }
  }

  TEST_CASE("what a plan says of its parts is what they add up to") {
    Config config;
    config.train.ema_decay = 0.9;
    config.train.global_batch = 64;
    config.checkpoint.every = 10;
    const MemoryPlan plan = plan_memory(config, 2, 1);
    CHECK(plan.world == 2);
    CHECK(plan.rank == 1);
    CHECK(plan.num_micro_batches == 4);
    std::int64_t held = 0;
    std::int64_t at_peak = 0;
    for (const PlannedItem& item : plan.items) {
      held += item.held;
      at_peak += item.at_peak;
    }
    CHECK(held == plan.memory.live_total);
    CHECK(at_peak == plan.peak());
    CHECK(plan.kept() >= plan.peak());
    const auto item = [&](const std::string& name) {
      const auto found = std::ranges::find(plan.items, name, &PlannedItem::name);
      REQUIRE(found != plan.items.end());
      return found->held;
    };
    // Parameters, gradients and an average of one size, two moments.
    CHECK(item("gradients") == item("parameters"));
    CHECK(item("average of weights") == item("parameters"));
    CHECK(item("optimizer states") == 2 * item("parameters"));
    // All of these but gradients are saved; each of them is rounded up by itself.
    CHECK(item("copy for checkpoints") >= plan.staging);
    CHECK(static_cast<double>(plan.staging) ==
          doctest::Approx(4.0 * static_cast<double>(item("parameters"))).epsilon(0.05));
    std::int64_t slots = 0;
    for (const PlannedSlots& each : plan.slots) {
      slots += each.num_slots * each.slot_nbytes;
      CHECK_FALSE(each.users.empty());
    }
    CHECK(item("slots of gathered units") == slots);
    // The last block's backward begins with all activations.
    CHECK(plan.peak_phase == "the backward of h.5");
    const auto in_phase = [&](const std::string& name) {
      const auto found = std::ranges::find(plan.phases, name, &StepPhase::name);
      REQUIRE_MESSAGE(found != plan.phases.end(), name);
      return found->memory.peak_total;
    };
    CHECK(in_phase("the backward of h.5") == plan.peak());
    for (int block = 0; block < 5; ++block) {
      CHECK(in_phase(fmt::format("the forward of h.{}", block)) <
            in_phase(fmt::format("the forward of h.{}", block + 1)));
      CHECK(in_phase(fmt::format("the backward of h.{}", block)) <
            in_phase(fmt::format("the backward of h.{}", block + 1)));
    }
    CHECK(in_phase("the update") < in_phase("the forward of the embeddings"));
  }

  TEST_CASE("a step moves what its micro-batches move, however many were run") {
    Config config;
    config.train.micro_batch = 1;
    const auto of_batches = [&config](std::int64_t number) {
      config.train.global_batch = 4 * number;
      return plan_memory(config, 4, 2);
    };
    for (const char* accumulate : {"sharded", "unsharded"}) {
      CAPTURE(accumulate);
      config.shard.accumulate = accumulate;
      const MemoryPlan two = of_batches(2);
      const MemoryPlan three = of_batches(3);
      const MemoryPlan nine = of_batches(9);
      REQUIRE(two.traffic.size() == nine.traffic.size());
      for (std::size_t i = 0; i < two.traffic.size(); ++i) {
        CAPTURE(two.traffic[i].collective);
        const std::int64_t each = three.traffic[i].calls - two.traffic[i].calls;
        CHECK(nine.traffic[i].calls == two.traffic[i].calls + 7 * each);
        CHECK(nine.traffic[i].bytes_received ==
              two.traffic[i].bytes_received +
                  7 * (three.traffic[i].bytes_received - two.traffic[i].bytes_received));
        // Six blocks and the rest.
        if (two.traffic[i].collective == "reduce_scatter") {
          CHECK(each == (config.shard.accumulate == "sharded" ? 7 : 0));
        } else if (two.traffic[i].collective == "all_reduce") {
          CHECK(each == 0);
        } else {
          CHECK(each > 0);
        }
      }
      CHECK(two.memory == nine.memory);
    }
  }

  TEST_CASE("a plan beside what was measured is one line, that names categories that differ") {
    const MemoryPlan plan = plan_memory(Config(), 4, 3, 1);
    MemoryCounters measured = plan.memory;
    const std::string begin =
        "memory of rank 3: " + size_text(plan.peak()) + " in use at the peak, ";
    CHECK(planned_and_measured(plan, measured) == begin + "as planned");
    measured.peak[static_cast<std::size_t>(MemoryCategory::Workspace)] += 2048;
    measured.peak[static_cast<std::size_t>(MemoryCategory::Activation)] -= 1 << 20;
    CHECK(planned_and_measured(plan, measured) ==
          begin + "planned " + size_text(plan.peak()) +
              ": activation -1.00 MiB, workspace +2.00 KiB");
    measured = plan.memory;
    measured.peak_total -= 64;
    CHECK(planned_and_measured(plan, measured).find("planned ") != std::string::npos);
  }

  TEST_CASE("what no rank could train is refused, with what to change") {
    const auto refuses = [](const std::vector<std::string>& overrides, int world, int rank,
                            const char* text) {
      const Config config = parse_config("", "test", overrides);
      CHECK_THROWS_WITH_AS(plan_memory(config, world, rank), doctest::Contains(text), ConfigError);
    };
    refuses({}, 5, 0, "5 ranks need as many micro-batches, but a step has 4");
    refuses({}, 2, 2, "rank 2 is none of the 2 ranks");
    refuses({"mesh.replicate=3"}, 4, 0, "mesh.replicate = 3: must divide the number of ranks");
    refuses({"mesh.shard=4"}, 2, 0, "mesh.shard = 4");
  }
}

}  // namespace fsdptrain::tools
