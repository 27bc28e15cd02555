#include "shard/sharded_model.h"

#include <fmt/format.h>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/meta.h"
#include "runtime/optim/adamw.h"
#include "tests/support/sharded_chain.h"

namespace fsdptrain::shard {
namespace {

using comm::World;
using testing::Chain;
using testing::ChainLoss;
using testing::difference_of;
using testing::Of;
using testing::on_two_and_three;
using testing::ShardedChain;
using testing::Values;

constexpr int kNumBlocks = 4;

}  // namespace

TEST_SUITE("shard/sharded_model") {
  TEST_CASE("first values are those of one rank, under whole names") {
    testing::on_ranks([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      testing::Unsharded<Chain, ChainLoss> whole({.seed = 5}, kNumBlocks);
      for (const auto& unit : sharded.model.units()) {
        const auto found =
            difference_of(unit->group(), world.rank(), Of::Parameters, whole.values());
        CHECK(found.largest == 0);
      }
      CHECK(sharded.model.units()[1]->name() == "blocks.1");
      CHECK(sharded.model.units()[4]->name() == "the root");
    });
  }

  TEST_CASE("by default the root stays gathered, and so does what the backward begins with") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      for (int step = 0; step < 3; ++step) {
        sharded.step(step);
        CHECK(sharded.calls() == "G4 G0 G1 G2 G3 R4 g2 R3 g1 R2 g0 R1 R0 ");
      }
      // A forward that no backward follows leaves two to the next.
      sharded.loss(0);
      CHECK(sharded.unit(3).group().unsharded());
      CHECK(sharded.unit(4).group().unsharded());
      CHECK_FALSE(sharded.unit(2).group().unsharded());
      sharded.step(3);
      CHECK(sharded.calls() == "G4 G0 G1 G2 G3 G0 G1 G2 G3 R4 g2 R3 g1 R2 g0 R1 R0 ");
    });
  }

  TEST_CASE("units are given back after the forward, or not at all, where that is asked for") {
    on_two_and_three([](World& world) {
      ShardedChain always(world, kNumBlocks, {.reshard_after_forward = true});
      always.step(0);
      always.step(1);
      const std::string each = "G4 G0 G1 G2 G3 g4 g3 R4 g2 R3 g1 R2 g0 R1 R0 ";
      CHECK(always.calls() == each + each);
      always.unit(4).set_reshard_after_forward(false);
      always.step(2);
      CHECK(always.calls() == "G4 G0 G1 G2 G3 R4 R3 R2 R1 R0 ");
      always.unit(1).set_reshard_after_forward(true);
      always.step(3);
      CHECK(always.calls() == "G4 G0 G1 G2 G3 R4 R3 g1 R2 R1 R0 ");
      for (const auto& unit : always.model.units()) {
        CHECK_FALSE(unit->group().unsharded());
      }
    });
  }

  TEST_CASE("what stays gathered after the backward is gathered again after an update only") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks, {.reshard_after_forward = false});
      sharded.unit(4).set_reshard_after_backward(false);
      sharded.step(0);
      sharded.calls();
      sharded.step(1);
      CHECK(sharded.calls() == "R4 R3 R2 R1 R0 ");
      sharded.model.bump_epoch();
      sharded.step(2);
      CHECK(sharded.calls() == "G4 G0 G1 G2 G3 R4 R3 R2 R1 R0 ");
      sharded.unit(4).set_reshard_after_backward(true);
      sharded.step(3);
      CHECK_FALSE(sharded.unit(0).group().unsharded());
    });
  }

  TEST_CASE("a backward without sync reduces nothing, and the next one all there is") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks, {.reshard_after_forward = true});
      testing::Unsharded<Chain, ChainLoss> whole({.seed = 5}, kNumBlocks);
      sharded.unit(4).set_requires_gradient_sync(false);
      sharded.step(0);
      CHECK(sharded.calls() == "G4 G0 G1 G2 G3 g4 g3 g2 g1 g0 ");
      sharded.unit(4).set_requires_gradient_sync(true);
      // Blocks 2 and 3 are not in the last backward, and reduced all the same.
      sharded.chain.route = {0, 1};
      autograd::backward(sharded.loss(1));
      CHECK(sharded.calls() == "G4 G0 G1 G2 g4 g1 R4 g0 R1 R0 R2 R3 ");
      Values expected = whole.sum_of_gradients(world.size(), 0);
      whole.model().route = {0, 1};
      for (const auto& [name, values] : whole.sum_of_gradients(world.size(), 1)) {
        expected[name] = testing::added(expected[name], values, DType::Float32);
      }
      sharded.expect_gradients(expected, 1e-5);
    });
  }

  TEST_CASE("gradients without sync are forgotten by zero_grad") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      testing::Unsharded<Chain, ChainLoss> whole({.seed = 5}, kNumBlocks);
      sharded.unit(4).set_requires_gradient_sync(false);
      sharded.step(0);
      sharded.unit(4).set_requires_gradient_sync(true);
      sharded.step(1);
      sharded.expect_gradients(whole.sum_of_gradients(world.size(), 1), 0);
    });
  }

  TEST_CASE("only the last of several backwards waits for its reductions") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      testing::Unsharded<Chain, ChainLoss> whole({.seed = 5}, kNumBlocks);
      sharded.model.set_is_last_backward(false);
      sharded.step(0);
      CHECK_FALSE(sharded.model.pool().idle());
      sharded.model.set_is_last_backward(true);
      autograd::backward(sharded.loss(1));
      CHECK(sharded.model.pool().idle());
      Values expected = whole.sum_of_gradients(world.size(), 0);
      for (const auto& [name, values] : whole.sum_of_gradients(world.size(), 1)) {
        expected[name] = testing::added(expected[name], values, DType::Float32);
      }
      sharded.expect_gradients(expected, 0);
    });
  }

  TEST_CASE("explicit lists take the place of the order") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks, {.reshard_after_forward = true});
      sharded.unit(4).set_modules_to_forward_prefetch({&sharded.unit(0), &sharded.unit(1)});
      sharded.unit(4).set_modules_to_backward_prefetch({});
      sharded.unit(3).set_modules_to_backward_prefetch({&sharded.unit(2), &sharded.unit(1)});
      std::vector<std::string> before;
      sharded.chain.before_block = [&](std::size_t /*block*/) {
        before.push_back(sharded.calls());
      };
      const Tensor loss = sharded.loss(0);
      // Those without a list go by the order.
      CHECK((before == std::vector<std::string>{"G4 G0 G1 ", "", "G2 ", "G3 "}));
      autograd::backward(loss);
      CHECK(sharded.calls() == "g4 R4 g3 g2 g1 R3 R2 g0 R1 R0 ");
    });
  }

  TEST_CASE("unshard gathers at once or later, and reshard gives back") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      UnshardHandle handle = sharded.unit(1).unshard(true);
      CHECK(sharded.calls() == "G1 ");
      CHECK_THROWS_AS(sharded.chain.blocks[1]->weight().view(), StorageError);
      handle.wait();
      CHECK(sharded.chain.blocks[1]->weight().to_vector().size() == 36);
      sharded.unit(1).reshard();
      CHECK_THROWS_AS(sharded.chain.blocks[1]->weight().view(), StorageError);
      sharded.unit(0).unshard();
      sharded.calls();
      sharded.step(0);
      CHECK(sharded.calls() == "G4 G1 G2 G3 R4 g2 R3 g1 R2 g0 R1 R0 ");
    });
  }

  TEST_CASE("a list is one unit: gathered for the first that runs, given back after the last") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks, {.reshard_after_forward = true}, {},
                           {{1, 2}, {0}, {3}});
      testing::Unsharded<Chain, ChainLoss> whole({.seed = 5}, kNumBlocks);
      for (int step = 0; step < 2; ++step) {
        sharded.step(step);
        // Units were not made in the order in which they run, which the first step finds out.
        const std::string forward = step == 0 ? "G3 G0 G1 G2 " : "G3 G1 G0 G2 ";
        CHECK(sharded.calls() == forward + "g3 g2 R3 g0 R2 g1 R0 R1 ");
        sharded.expect_gradients(whole.sum_of_gradients(world.size(), step), 0);
      }
      CHECK(sharded.unit(0).name() == "blocks.1, blocks.2");
      // Of a list of which not all run the rest is given back with the model.
      sharded.chain.route = {0, 1, 3};
      whole.model().route = {0, 1, 3};
      sharded.step(2);
      sharded.expect_gradients(whole.sum_of_gradients(world.size(), 2), 0);
      CHECK(sharded.model.pool().idle());
    });
  }

  TEST_CASE("blocks that run twice, or not, have the gradients of one rank") {
    for (const int num_ranks : {1, 2, 3}) {
      comm::run_ranks({.num_ranks = num_ranks}, [](World& world) {
        ShardedChain sharded(world, kNumBlocks);
        testing::Unsharded<Chain, ChainLoss> whole({.seed = 5}, kNumBlocks);
        for (const std::vector<std::size_t>& route :
             {std::vector<std::size_t>{0, 1, 0, 1}, {2, 2, 3}, {3, 1}, {0}}) {
          sharded.chain.route = route;
          whole.model().route = route;
          for (int step = 0; step < 2; ++step) {
            sharded.step(step);
            sharded.expect_gradients(whole.sum_of_gradients(world.size(), step), 1e-5);
            CHECK(sharded.model.pool().idle());
          }
        }
      });
    }
  }

  TEST_CASE("a forward without gradients leaves nothing gathered") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks, {.reshard_after_forward = false});
      for (int step = 0; step < 3; ++step) {
        sharded.step(step);
        sharded.calls();
        const autograd::NoGradGuard no_grad;
        sharded.loss(step);
        CHECK(sharded.calls() == "G4 G0 G1 G2 G3 ");
        for (const auto& unit : sharded.model.units()) {
          CHECK_FALSE(unit->group().unsharded());
        }
      }
      CHECK(sharded.model.pool().num_unplanned() == 0);
    });
  }

  TEST_CASE("what was gathered ahead for a forward that ends early is given back with it") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      sharded.step(0);
      sharded.calls();
      sharded.chain.route = {0};
      const autograd::NoGradGuard no_grad;
      sharded.loss(0);
      CHECK(sharded.calls() == "G4 G0 G1 ");
      CHECK(sharded.model.pool().idle());
      CHECK_THROWS_AS(sharded.chain.blocks[1]->weight().view(), StorageError);
    });
  }

  TEST_CASE("a second backward of a graph is not what later steps are planned by") {
    on_two_and_three([](World& world) {
      // In the first step the order is not known, and there is no plan yet.
      ShardedChain sharded(world, kNumBlocks, {}, {.prefetch = 2}, {{1}, {0}, {2}, {3}});
      const Tensor loss = sharded.loss(0);
      autograd::backward(loss, {.grad_output = {}, .retain_graph = true});
      autograd::backward(loss);
      CHECK_FALSE(sharded.model.pool().plan());
      for (int step = 1; step < 4; ++step) {
        sharded.step(step);
      }
      CHECK(sharded.model.pool().num_unplanned() == 0);
    });
  }

  TEST_CASE("inputs are cast to the compute dtype and outputs to the one asked for") {
    comm::run_ranks({.num_ranks = 2}, [](World& world) {
      Chain chain(1);
      ShardedModel model(chain, world.group(), {.seed = 5});
      model.fully_shard(*chain.blocks[0], {.policy = {.param_dtype = DType::BFloat16}});
      model.fully_shard(
          chain, {.policy = {.param_dtype = DType::BFloat16, .output_dtype = DType::Float32}});
      const Tensor x = Tensor::full({4, testing::kChainWidth}, 0.5);
      CHECK(chain(x).dtype() == DType::Float32);
      ShardedChain uncast(
          world, kNumBlocks,
          {.policy = {.param_dtype = DType::BFloat16, .cast_forward_inputs = false}}, {.root = 1});
      CHECK_THROWS_AS(uncast.chain(x), DTypeError);
      CHECK(uncast.chain(Tensor::full({4, testing::kChainWidth}, 0.5, DType::BFloat16)).dtype() ==
            DType::BFloat16);
    });
  }

  TEST_CASE("ignored parameters stay the caller's, and so do their gradients") {
    on_two_and_three([](World& world) {
      Chain chain(kNumBlocks);
      ShardedModel model(chain, world.group(), {.seed = 5, .ignored = {&chain.scale}});
      for (const auto& block : chain.blocks) {
        model.fully_shard(*block);
      }
      model.fully_shard(chain);
      CHECK_THROWS_WITH_AS(ChainLoss{}(chain, 0, 0, DType::Float32),
                           doctest::Contains("no call has taken scale: they have no values"),
                           AutogradError);
      chain.scale = Tensor::full({testing::kChainWidth}, 1 + world.rank());
      chain.scale.set_requires_grad(true);
      autograd::backward(ChainLoss{}(chain, world.rank(), 0, DType::Float32));
      CHECK(chain.scale.grad().numel() == testing::kChainWidth);
      CHECK(chain.scale.item(0) == 1 + world.rank());
    });
  }

  TEST_CASE("after a backward that failed, reset_iter_state makes the next step a clean one") {
    on_two_and_three([](World& world) {
      ShardedChain sharded(world, kNumBlocks);
      testing::Unsharded<Chain, ChainLoss> whole({.seed = 5}, kNumBlocks);
      sharded.step(0);
      for (const std::size_t block : {0U, 2U, 3U}) {
        sharded.chain.blocks[block]->add_hooks(
            {.pre_forward = {},
             .post_forward =
                 [](nn::Module::Tensors& outputs) {
                   outputs[0].autograd_meta()->pre_backward_hooks.emplace_back(
                       [] { fail("planted"); });
                 },
             .owner = &world});
        CHECK_THROWS_WITH_AS(sharded.step(1), doctest::Contains("planted"), Error);
        sharded.chain.blocks[block]->remove_hooks(&world);
        CHECK_THROWS_WITH_AS(sharded.loss(1),
                             doctest::Contains("call reset_iter_state() on all ranks"),
                             AutogradError);
        sharded.model.reset_iter_state();
        CHECK(sharded.model.pool().idle());
        sharded.step(2);
        sharded.expect_gradients(whole.sum_of_gradients(world.size(), 2), 0);
      }
      sharded.chain.before_block = [](std::size_t block) { check(block < 2, "planted"); };
      CHECK_THROWS_WITH_AS(sharded.step(1), doctest::Contains("planted"), Error);
      sharded.chain.before_block = [](std::size_t /*block*/) {};
      CHECK(sharded.model.pool().idle());
      sharded.step(2);
      sharded.expect_gradients(whole.sum_of_gradients(world.size(), 2), 0);
    });
  }
}

}  // namespace fsdptrain::shard
