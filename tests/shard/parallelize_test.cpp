#include "models/parallelize.h"

#include <string>

#include <doctest/doctest.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/optim/adamw.h"
#include "tests/support/block_chain.h"
#include "tests/support/tiny_decoders.h"

namespace fsdptrain::testing {
namespace {

// What the second and third step of a model call, which are the same.
template <class Model, class Config>
std::string calls_of_step(comm::World& world, const Config& config, nn::Recompute recompute) {
  Model model(config);
  shard::ShardedModel sharded(model, world.group(), {.seed = 5});
  models::parallelize(model, sharded);
  model.set_block_recompute(recompute);
  std::uint64_t seen = 0;
  std::string calls[3];
  for (std::string& of_step : calls) {
    gathers_and_reductions(world, seen);
    sharded.zero_grad();
    autograd::backward(tiny_loss(model, world.rank(), 0));
    of_step = gathers_and_reductions(world, seen);
  }
  CHECK(calls[1] == calls[2]);
  return calls[2];
}

}  // namespace

TEST_SUITE("models/parallelize") {
  TEST_CASE("GPT-2 is its blocks and the rest: so many collectives, in this order") {
    for (const int num_ranks : {2, 3}) {
      comm::run_ranks({.num_ranks = num_ranks}, [](comm::World& world) {
        for (const nn::Recompute recompute : {nn::Recompute::None, nn::Recompute::Full}) {
          // The table of tokens is the rest's, and its gradient the last.
          CHECK(calls_of_step<models::Gpt2>(world, tiny_gpt2(), recompute) ==
                "G3 G0 G1 G2 g1 R2 g0 R1 R0 R3 ");
        }
      });
    }
  }

  TEST_CASE("Llama's own embedding is a unit, and not gathered for its backward") {
    for (const int num_ranks : {2, 3}) {
      comm::run_ranks({.num_ranks = num_ranks}, [](comm::World& world) {
        CHECK(calls_of_step<models::Llama>(world, tiny_llama(false), nn::Recompute::Full) ==
              "G4 G0 G1 G2 G3 R4 g2 R3 g1 R2 R1 R0 ");
        CHECK(calls_of_step<models::Llama>(world, tiny_llama(true), nn::Recompute::None) ==
              "G3 G0 G1 G2 g1 R2 g0 R1 R0 R3 ");
      });
    }
  }

  TEST_CASE("logits without gradients are those of one rank, in and after training") {
    for (const int num_ranks : {1, 2, 3}) {
      comm::run_ranks({.num_ranks = num_ranks}, [](comm::World& world) {
        models::Llama model(tiny_llama(false));
        shard::ShardedModel sharded(model, world.group(), {.seed = 5});
        models::parallelize(model, sharded, {.gradient_divide_factor = 1});
        models::Llama whole(tiny_llama(false));
        FlatParameters owner(whole, {.seed = 5});
        optim::AdamW optimizer(sharded.chunks(), {});
        optim::AdamW whole_optimizer(owner.chunks(), {});
        for (int step = 0; step < 3; ++step) {
          {
            const autograd::NoGradGuard no_grad;
            const auto rows = models::one_document(tiny_tokens(0, step));
            CHECK(model.logits(rows).to_vector() == whole.logits(rows).to_vector());
            CHECK(sharded.pool().idle());
          }
          // One rank has the batch, the others one of no weight.
          sharded.zero_grad();
          const Tensor loss = tiny_loss(model, 0, step);
          autograd::backward(ops::scale(loss, world.rank() == 0 ? 1 : 0));
          sharded.mark_active_segments();
          optimizer.step(sharded.chunks(), 0.01, {});
          sharded.bump_epoch();
          owner.zero_grad();
          autograd::backward(tiny_loss(whole, 0, step));
          owner.mark_active_segments();
          whole_optimizer.step(owner.chunks(), 0.01, {});
          owner.bump_epoch();
        }
        CHECK(sharded.pool().num_unplanned() == 0);
      });
    }
  }
}

}  // namespace fsdptrain::testing
