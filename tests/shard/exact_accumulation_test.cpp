#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "models/parallelize.h"
#include "runtime/base/ignored_target.h"
#include "tests/support/block_chain.h"
#include "tests/support/replicated.h"
#include "tests/support/tiny_decoders.h"
#include "tests/support/whole_gradients.h"

// The same gradients on any number of ranks: bits of float32, signs of zeros among them.
namespace fsdptrain::testing {
namespace {

using shard::Accumulation;
using shard::ShardedModel;
using shard::ShardedUnit;

constexpr int kStep = 3;
const std::vector<int> kNumsMicroBatches = {1, 3, 4, 6, 8};

// Runs micro-batch `first + stride * i` of `num`, on a rank that has them from `first` on in steps
// of `stride`; `micro_batch` is told what lies beyond the last one as well.
template <class MicroBatch>
void run_share(ShardedModel& model, const comm::World& world, int num,
               const MicroBatch& micro_batch) {
  model.zero_grad();
  const int num_local = (num + world.size() - 1) / world.size();
  for (int i = 0; i < num_local; ++i) {
    model.set_is_last_backward(i + 1 == num_local);
    autograd::backward(micro_batch(i * world.size() + world.rank()));
  }
}

struct Case {
  // 0: GPT-2, which ties its embedding; 1 and 2: Llama, tied and not.
  int model = 0;
  nn::Recompute recompute = nn::Recompute::None;
  std::optional<DType> compute = {};
  Accumulation accumulation = Accumulation::Exact;
  // Each rank has all of the model.
  bool replicated = false;

  std::unique_ptr<models::Decoder> make_model() const {
    if (model == 0) {
      return std::make_unique<models::Gpt2>(tiny_gpt2());
    }
    return std::make_unique<models::Llama>(tiny_llama(model == 1));
  }
};

// What the step does not have is its last micro-batch without targets.
Tensor decoder_loss(models::Decoder& model, int micro_batch, int num) {
  if (micro_batch < num) {
    return tiny_loss(model, micro_batch, kStep, ops::HeadForm::GradientInForward);
  }
  const Tensor targets = Tensor::full({2, 9}, kIgnoredTarget, DType::Int64);
  return model.loss(models::one_document(tiny_tokens(num - 1, kStep)), targets,
                    {.loss_scale = 0.1, .form = ops::HeadForm::GradientInForward});
}

Values decoder_gradients(const Case& of, int num_ranks, int num_micro_batches) {
  WholeGradients gradients;
  comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
    const auto model = of.make_model();
    const DataParallelAxes axes(world, of.replicated);
    ShardedModel sharded(*model, axes.shards,
                         {.seed = 5, .replicas = axes.replicas, .accumulation = of.accumulation});
    const ShardedUnit::Options options{.policy = {.param_dtype = of.compute},
                                       .gradient_divide_factor = 1};
    models::parallelize(*model, sharded, options);
    model->set_block_recompute(of.recompute);
    const auto micro_batch = [&](int i) { return decoder_loss(*model, i, num_micro_batches); };
    // A step before it leaves nothing behind.
    run_share(sharded, world, 1, micro_batch);
    run_share(sharded, world, num_micro_batches, micro_batch);
    sharded.mark_active_segments();
    if (!of.replicated || world.rank() == num_ranks - 1) {
      gradients.add(sharded);
    }
  });
  return gradients.values();
}

// Of a chain whose blocks run by `route`, one of them frozen.
Values chain_gradients(const std::vector<std::size_t>& route, int num_ranks, int num) {
  WholeGradients gradients;
  comm::run_ranks({.num_ranks = num_ranks}, [&](comm::World& world) {
    Chain chain(4);
    chain.route = route;
    ShardedModel sharded(chain, world.group(),
                         {.seed = 5,
                          .accumulation = Accumulation::Exact,
                          .rules = {{.pattern = "blocks.1.*", .trainable = false}}});
    for (const auto& block : chain.blocks) {
      sharded.fully_shard(*block, {.gradient_divide_factor = 1});
    }
    sharded.fully_shard(chain, {.gradient_divide_factor = 1});
    run_share(sharded, world, num, [&](int i) {
      const Tensor loss = ChainLoss{}(chain, i, kStep, DType::Float32);
      return ops::multiply(loss, Tensor::full({}, i < num ? 1 : 0));
    });
    sharded.mark_active_segments();
    gradients.add(sharded);
  });
  return gradients.values();
}

// Shards, or replicas.
void expect_same_bits(Case of, std::span<const int> nums) {
  CAPTURE(of.model);
  for (const int num : nums) {
    CAPTURE(num);
    const bool replicated = std::exchange(of.replicated, false);
    const Values alone = decoder_gradients(of, 1, num);
    CHECK(alone.size() > 10);
    of.replicated = replicated;
    for (const int num_ranks : {2, 4}) {
      CAPTURE(num_ranks);
      CHECK(num_different_bits(alone, decoder_gradients(of, num_ranks, num)) == 0);
    }
  }
}

}  // namespace

TEST_SUITE("shard/exact accumulation") {
  TEST_CASE("decoders have the same gradients on one, two and four ranks, bit for bit") {
    expect_same_bits({.model = 0, .recompute = nn::Recompute::Full}, kNumsMicroBatches);
    expect_same_bits({.model = 1, .recompute = nn::Recompute::Selective}, kNumsMicroBatches);
    expect_same_bits({.model = 2, .recompute = nn::Recompute::Full}, kNumsMicroBatches);
  }

  TEST_CASE(
      "so they have as replicas, without recomputation, and in a compute dtype of their own") {
    constexpr int kFew[] = {3, 6};
    expect_same_bits({.model = 0, .replicated = true}, kFew);
    expect_same_bits({.model = 2}, kFew);
    expect_same_bits({.model = 1, .compute = DType::BFloat16}, kFew);
  }

  TEST_CASE("units that run several times or never, and frozen ones, have the same bits") {
    for (const std::vector<std::size_t>& route :
         {std::vector<std::size_t>{0, 1, 0, 2, 0}, {3, 3}}) {
      for (const int num : {3, 4, 6}) {
        CAPTURE(num);
        const Values alone = chain_gradients(route, 1, num);
        for (const int num_ranks : {2, 4}) {
          CAPTURE(num_ranks);
          CHECK(num_different_bits(alone, chain_gradients(route, num_ranks, num)) == 0);
        }
      }
    }
  }

  TEST_CASE("sums that are added as they come are other bits on another number of ranks") {
    const Case as_they_come{.accumulation = Accumulation::Sharded};
    const Values alone = decoder_gradients(as_they_come, 1, 8);
    CHECK(num_different_bits(alone, decoder_gradients(as_they_come, 2, 8)) > 0);
    CHECK(num_different_bits(alone, decoder_gradients({}, 1, 8)) > 0);
    // Of one micro-batch there is one sum.
    CHECK(num_different_bits(decoder_gradients(as_they_come, 1, 1), decoder_gradients({}, 1, 1)) ==
          0);
  }
}

}  // namespace fsdptrain::testing
