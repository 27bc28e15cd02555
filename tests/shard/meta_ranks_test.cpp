#include "comm/meta/meta_ranks.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/run_ranks.h"
#include "models/parallelize.h"
#include "runtime/autograd/engine.h"
#include "runtime/optim/adamw.h"
#include "tests/support/rank_backends.h"
#include "tests/support/tiny_decoders.h"

// A rank without partners, on meta, beside one that has them.
namespace fsdptrain::testing {
namespace {

struct Variant {
  std::string name;
  shard::ShardedUnit::Options unit = {};
  nn::Recompute recompute = nn::Recompute::None;
  int num_micro_batches = 1;
  bool sync_each = true;
  int prefetch = 1;
};

std::vector<Variant> variants() {
  const shard::MixedPrecisionPolicy half{.param_dtype = DType::BFloat16};
  const shard::MixedPrecisionPolicy all_half{.param_dtype = DType::BFloat16,
                                             .reduce_dtype = DType::BFloat16};
  return {{.name = "as it is"},
          {.name = "bfloat16, recomputed", .unit = {half}, .recompute = nn::Recompute::Full},
          {.name = "kept", .unit = {.reshard_after_forward = false}, .num_micro_batches = 2},
          {.name = "all bfloat16, far ahead", .unit = {all_half}, .prefetch = 3},
          {.name = "selective, given back",
           .unit = {.reshard_after_forward = true, .gradient_divide_factor = 1},
           .recompute = nn::Recompute::Selective,
           .prefetch = 0},
          {.name = "without sync", .num_micro_batches = 3, .sync_each = false}};
}

// What the allocator of the ranks' device has counted at the end of each step, its peaks being
// those of that step.
template <class Model, class Config>
std::vector<MemoryCounters> steps(const Config& config, comm::ProcessGroup& ranks,
                                  const Variant& variant) {
  const Device device = ranks.device();
  Allocator& allocator = current_context().allocator(device);
  Model model(config);
  shard::ShardedModel sharded(model, ranks, {.seed = 5, .prefetch = variant.prefetch});
  models::parallelize(model, sharded, variant.unit);
  model.set_block_recompute(variant.recompute);
  optim::AdamW optimizer(sharded.chunks(), {});
  std::vector<MemoryCounters> counters;
  for (int step = 0; step < 3; ++step) {
    allocator.reset_peaks();
    sharded.zero_grad();
    for (int i = 0; i < variant.num_micro_batches; ++i) {
      const bool is_last = i + 1 == variant.num_micro_batches;
      sharded.set_is_last_backward(is_last);
      sharded.units().back()->set_requires_gradient_sync(is_last || variant.sync_each);
      const auto rows = [&] { return Tensor::zeros({2, 9}, DType::Int64, device); };
      autograd::backward(
          model.loss({rows(), rows(), rows()}, rows(), {.form = ops::HeadForm::GradientInForward}));
    }
    const auto clipped = sharded.clip_grad_norm(1);
    optimizer.step(sharded.chunks(), 0.01, clipped.scale);
    sharded.bump_epoch();
    counters.push_back(allocator.counters());
  }
  return counters;
}

template <class Model, class Config>
void expect_equal_counters(comm::World& world, const Config& config) {
  for (const Variant& variant : variants()) {
    CAPTURE(variant.name);
    comm::MetaRanks alone(world.rank(), world.size());
    const auto planned = steps<Model>(config, alone.group(), variant);
    const auto real = steps<Model>(config, world.group(), variant);
    for (std::size_t step = 0; step < real.size(); ++step) {
      CAPTURE(step);
      CHECK(planned[step].live == real[step].live);
      CHECK(planned[step].peak == real[step].peak);
      CHECK(planned[step].live_total == real[step].live_total);
      CHECK(planned[step].peak_total == real[step].peak_total);
    }
    CHECK(real.back().peak_of(MemoryCategory::Activation) > 0);
    if (world.size() > 1) {
      CHECK(real.back().live_of(MemoryCategory::Communication) > 0);
    }
  }
}

}  // namespace

TEST_SUITE("shard/meta_ranks") {
  TEST_CASE("a rank without partners, on meta, counts what a real one does, step for step") {
    for (const Backend backend : {Backend::Threads, Backend::Shm}) {
      for (const int num_ranks : {1, 2, 3}) {
        CAPTURE(name_of(backend));
        CAPTURE(num_ranks);
        comm::run_ranks(thread_ranks(backend, num_ranks), [](comm::World& world) {
          expect_equal_counters<models::Gpt2>(world, tiny_gpt2());
          expect_equal_counters<models::Llama>(world, tiny_llama(false));
          expect_equal_counters<models::Llama>(world, tiny_llama(true));
        });
      }
    }
  }

  TEST_CASE("what a step of three ranks moves is known without them") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    comm::MetaRanks ranks(1, 3);
    models::Gpt2 model(tiny_gpt2());
    shard::ShardedModel sharded(model, ranks.group(), {.seed = 5});
    const auto units = models::parallelize(model, sharded);
    const auto rows = [] { return Tensor::zeros({2, 9}, DType::Int64, Device::meta()); };
    autograd::backward(model.loss({rows(), rows(), rows()}, rows(), {}));
    const auto& by_use = ranks.traffic().by_use;
    // Three blocks and the rest; each is gathered for its forward, all but the last block and the
    // rest for the backward as well, and each is reduced once.
    std::int64_t gathered = 0;
    std::int64_t reduced = 0;
    for (std::uint32_t unit = 0; unit < 4; ++unit) {
      const auto chunk = sharded.units()[unit]->group().buffers()[0].chunk().numel();
      const std::int64_t nbytes = 2 * 4 * chunk;
      const auto at = [&](comm::Op op, comm::Direction direction) {
        const auto found = by_use.find({op, "world", 0, unit, direction});
        return found == by_use.end() ? comm::Traffic{} : found->second;
      };
      CHECK(at(comm::Op::AllGather, comm::Direction::Forward) == comm::Traffic{1, nbytes, nbytes});
      CHECK(at(comm::Op::AllGather, comm::Direction::Backward).calls == (unit < 2 ? 1 : 0));
      CHECK(at(comm::Op::ReduceScatter, comm::Direction::Backward) ==
            comm::Traffic{1, nbytes, nbytes});
      gathered += (unit < 2 ? 2 : 1) * nbytes;
      reduced += nbytes;
    }
    CHECK(ranks.traffic().of(comm::Op::AllGather).bytes_received == gathered);
    CHECK(ranks.traffic().of(comm::Op::ReduceScatter).bytes_received == reduced);
    CHECK(ranks.traffic().total().calls == 4 + 2 + 4);
  }

  TEST_CASE("a rank of a thousand holds a thousandth, and is run as one of three") {
    RankContext context({.threads = 1});
    const ContextGuard guard(context);
    for (const int rank : {0, 517, 1023}) {
      comm::MetaRanks ranks(rank, 1024);
      const auto counters = steps<models::Llama>(tiny_llama(false), ranks.group(), {});
      comm::MetaRanks few(0, 3);
      const auto of_few = steps<models::Llama>(tiny_llama(false), few.group(), {});
      // Chunks of a granule at least.
      CHECK(8 * counters[2].live_of(MemoryCategory::Parameter) <
            of_few[2].live_of(MemoryCategory::Parameter));
      CHECK(counters[2].peak_of(MemoryCategory::Activation) ==
            of_few[2].peak_of(MemoryCategory::Activation));
      CHECK(counters[2] == counters[1]);
    }
  }
}

}  // namespace fsdptrain::testing
