#include <atomic>
#include <fmt/format.h>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tests/support/sharded_chain.h"

// What may not be done with a sharded model: said at once, on the rank and by the name concerned.
namespace fsdptrain::shard {
namespace {

using comm::World;
using doctest::Contains;
using testing::Chain;
using testing::ChainLoss;
using testing::ShardedChain;

// A module that has `inner`, and computes by it; nothing of its own.
class Wrapper final : public nn::Module {
 public:
  explicit Wrapper(nn::Module& inner) : inner_(inner) { register_module("inner", inner); }

 private:
  Tensor forward(const Tensor& x) override { return inner_(x); }

  nn::Module& inner_;
};

// A module that computes with a parameter of another one.
class Borrower final : public nn::Module {
 public:
  Borrower() { register_module("lender", lender); }

  nn::Linear lender{{.in = 6, .out = 6}};

 private:
  Tensor forward(const Tensor& x) override { return ops::multiply(x, lender.weight()); }
};

// Two modules that register one parameter.
class Tied final : public nn::Module {
 public:
  class Half final : public nn::Module {
   public:
    explicit Half(Tensor& shared) { register_parameter("weight", shared, {}); }
  };

  Tied() {
    register_module("left", left);
    register_module("right", right);
  }

  Tensor shared = nn::unplaced_parameter({4});
  Half left{shared};
  Half right{shared};
};

void on_two(const std::function<void(World&)>& body) {
  comm::run_ranks({.num_ranks = 2}, body);
}

}  // namespace

TEST_SUITE("shard/sharded_model errors") {
  TEST_CASE("a part after the whole is refused by name") {
    on_two([](World& world) {
      Chain chain(2);
      ShardedModel model(chain, world.group(), {});
      model.fully_shard(chain);
      CHECK_THROWS_WITH_AS(model.fully_shard(*chain.blocks[1]),
                           Contains("blocks.1 comes after the root, which it is part of and which "
                                    "has taken blocks.1.weight: shard parts before the whole"),
                           ConfigError);
    });
  }

  TEST_CASE("a module is sharded once") {
    on_two([](World& world) {
      Chain chain(2);
      ShardedModel model(chain, world.group(), {});
      nn::Module& block = *chain.blocks[0];
      model.fully_shard(block);
      CHECK_THROWS_WITH_AS(model.fully_shard(block), Contains("blocks.0 is sharded twice"),
                           ConfigError);
      nn::Module& other = *chain.blocks[1];
      CHECK_THROWS_WITH_AS(model.fully_shard({&other, &other}),
                           Contains("blocks.1 is sharded twice"), ConfigError);
      CHECK_THROWS_WITH_AS(model.fully_shard(std::vector<nn::Module*>()),
                           Contains("the list of modules is empty"), ConfigError);
    });
  }

  TEST_CASE("a parameter of two units is refused, and taken once by a list of both") {
    on_two([](World& world) {
      Tied tied;
      {
        ShardedModel model(tied, world.group(), {});
        model.fully_shard(tied.left);
        CHECK_THROWS_WITH_AS(model.fully_shard(tied.right),
                             Contains("shares the parameter left.weight with left, which has taken "
                                      "it: shard both by one call with a list of modules"),
                             ConfigError);
      }
      ShardedModel model(tied, world.group(), {});
      CHECK(model.fully_shard({&tied.left, &tied.right}).group().parameters().size() == 1);
    });
  }

  TEST_CASE("a module of another model, or without parameters, is no unit") {
    on_two([](World& world) {
      Chain chain(2);
      nn::Linear stranger({.in = 2, .out = 2});
      class Nothing final : public nn::Module {
      } nothing;
      ShardedModel model(chain, world.group(), {});
      CHECK_THROWS_WITH_AS(model.fully_shard(stranger),
                           Contains("the module with the parameter weight is no part of the model"),
                           ConfigError);
      CHECK_THROWS_WITH_AS(model.fully_shard(nothing), Contains("a module without parameters"),
                           ConfigError);
    });
  }

  TEST_CASE("an optimizer comes after sharding") {
    on_two([](World& world) {
      Chain chain(2);
      ShardedModel model(chain, world.group(), {});
      model.fully_shard(*chain.blocks[0]);
      model.chunks();
      CHECK_THROWS_WITH_AS(model.fully_shard(chain),
                           Contains("the root comes after chunks() were asked for"), AutogradError);
    });
  }

  TEST_CASE("the model is sharded before it runs, as a whole") {
    on_two([](World& world) {
      Chain chain(2);
      ShardedModel model(chain, world.group(), {});
      model.fully_shard(*chain.blocks[0]);
      // The first block is the first to run, and has not the others in it.
      CHECK_THROWS_WITH_AS(ChainLoss{}(chain, 0, 0, DType::Float32),
                           Contains("no call has taken scale, blocks.1.weight, blocks.1.bias"),
                           AutogradError);
      model.fully_shard(*chain.blocks[1]);
      CHECK_THROWS_WITH_AS(ChainLoss{}(chain, 0, 0, DType::Float32),
                           Contains("blocks.0 runs before the model that it and blocks.1 are part "
                                    "of"),
                           AutogradError);
      model.fully_shard(chain);
      CHECK(ChainLoss{}(chain, 0, 0, DType::Float32).numel() == 1);
      CHECK_THROWS_WITH_AS(model.fully_shard(*chain.blocks[0]),
                           Contains("comes after the first forward"), AutogradError);
    });
  }

  TEST_CASE("a part runs within the model only") {
    on_two([](World& world) {
      ShardedChain sharded(world, 2);
      const Tensor x = Tensor::zeros({1, testing::kChainWidth});
      nn::Module& block = *sharded.chain.blocks[1];
      CHECK_THROWS_WITH_AS(block(x), Contains("blocks.1 runs before the model"), AutogradError);
    });
  }

  TEST_CASE("a part that runs after the model's forward is named") {
    on_two([](World& world) {
      ShardedChain sharded(world, 2);
      sharded.step(0);
      const Tensor x = Tensor::zeros({1, testing::kChainWidth});
      CHECK_THROWS_WITH_AS((*sharded.chain.blocks[1])(x),
                           Contains("blocks.1 runs outside of a forward of the model"),
                           AutogradError);
      sharded.step(1);
    });
  }

  TEST_CASE("the root is one module") {
    on_two([](World& world) {
      Chain chain(1);
      Wrapper wrapper(chain);
      ShardedModel model(wrapper, world.group(), {});
      model.fully_shard({&wrapper, &chain});
      CHECK_THROWS_WITH_AS(wrapper(Tensor::zeros({1, testing::kChainWidth})),
                           Contains("the root is one module"), ConfigError);
    });
  }

  TEST_CASE("a parameter that is read outside of its module's call is named") {
    on_two([](World& world) {
      Borrower borrower;
      ShardedModel model(borrower, world.group(), {});
      model.fully_shard(borrower.lender);
      model.fully_shard(borrower);
      CHECK_THROWS_WITH_AS(
          borrower(Tensor::zeros({6, 6})),
          Contains("the sharded parameter lender.weight, gathered only within its module's"),
          StorageError);
      CHECK(model.pool().idle());
    });
  }

  TEST_CASE("an update between forward and backward is named by its parameter") {
    on_two([](World& world) {
      ShardedChain sharded(world, 2);
      const Tensor loss = sharded.loss(0);
      sharded.model.bump_epoch();
      CHECK_THROWS_WITH_AS(autograd::backward(loss),
                           Contains("parameter scale was changed between forward and backward"),
                           AutogradError);
      sharded.model.reset_iter_state();
      sharded.step(1);
    });
  }

  TEST_CASE("a forward whose casts fail is over, and the next one is gathered ahead as ever") {
    testing::on_two_and_three([](World& world) {
      ShardedChain sharded(
          world, 2, {.policy = {.param_dtype = DType::BFloat16, .output_dtype = DType::BFloat16}});
      sharded.step(0);
      sharded.calls();
      const Tensor no_bytes = Tensor::over(Storage::placed(Device::cpu(), 64), DType::Float32, {8},
                                           Strides::contiguous({8}), 0);
      CHECK_THROWS_AS(sharded.chain(no_bytes), StorageError);
      sharded.chain.add_hooks(
          {.pre_forward = {},
           .post_forward = [&](nn::Module::Tensors& outputs) { outputs = {no_bytes}; },
           .owner = &world});
      CHECK_THROWS_AS(sharded.loss(0), StorageError);
      sharded.chain.remove_hooks(&world);
      sharded.calls();
      sharded.step(1);
      CHECK(sharded.calls() == "G2 G0 G1 R2 g0 R1 R0 ");
      CHECK(sharded.model.pool().idle());
    });
  }

  TEST_CASE("gradients have no norm before the last of several backwards") {
    testing::on_ranks([](World& world) {
      for (const Accumulation accumulation : {Accumulation::Sharded, Accumulation::Exact}) {
        ShardedChain sharded(world, 2, {}, {.accumulation = accumulation});
        sharded.model.set_is_last_backward(false);
        sharded.step(0);
        // What is reduced last is under way still; exact sums of the rest are not made, either.
        sharded.chain.route = {1};
        autograd::backward(sharded.loss(1));
        const bool is_exact = accumulation == Accumulation::Exact;
        if (is_exact || world.size() > 1) {
          const std::string text =
              fmt::format("the gradients of blocks.{} are not final", is_exact ? 0 : 1);
          CHECK_THROWS_WITH_AS(sharded.model.gradient_norm(), Contains(text.c_str()),
                               AutogradError);
          CHECK_THROWS_AS(sharded.model.mark_active_segments(), AutogradError);
        }
        sharded.model.set_is_last_backward(true);
        autograd::backward(sharded.loss(2));
        CHECK(sharded.model.gradient_norm().item() > 0);
        sharded.model.set_is_last_backward(false);
        sharded.step(0);
        sharded.model.zero_grad();
        CHECK(sharded.model.gradient_norm().item() == 0);
      }
    });
  }

  TEST_CASE("a divide factor changes where there are no gradients") {
    testing::on_ranks([](World& world) {
      ShardedChain sharded(world, 1);
      sharded.unit(1).set_gradient_divide_factor(1);
      sharded.step(0);
      CHECK_THROWS_WITH_AS(sharded.unit(1).set_gradient_divide_factor(4),
                           Contains("scale has a gradient"), AutogradError);
      const double before = sharded.unit(0).group().chunks().at(0).gradients.item(0);
      sharded.model.zero_grad();
      sharded.unit(0).set_gradient_divide_factor(4);
      sharded.step(0);
      CHECK(sharded.unit(0).group().chunks().at(0).gradients.item(0) == before / 4);
    });
  }

  TEST_CASE("ranks that run modules in different orders are told so, and none waits") {
    for (const int divergent : {0, 1, 2}) {
      CAPTURE(divergent);
      CHECK_THROWS_WITH_AS(comm::run_ranks({.num_ranks = 3},
                                           [&](World& world) {
                                             ShardedChain sharded(world, 3);
                                             sharded.step(0);
                                             if (world.rank() == divergent) {
                                               sharded.chain.route = {0, 2, 1};
                                             }
                                             sharded.step(1);
                                           }),
                           Contains("group"), comm::MismatchError);
    }
  }

  TEST_CASE("after a rank has failed, a model gives back all that it holds when it is destroyed") {
    const auto held = [] {
      return current_context()
          .allocator(Device::cpu())
          .counters()
          .live_of(MemoryCategory::Communication);
    };
    std::atomic<int> num_destroyed = 0;
    comm::try_ranks({.num_ranks = 3}, [&](World& world) {
      const std::int64_t before = held();
      std::int64_t slots = 0;
      {
        ShardedChain sharded(world, 3);
        const auto train = [&] {
          sharded.step(0);
          const Tensor loss = sharded.loss(1);
          check(world.rank() != 2, "this rank fails");
          autograd::backward(loss);
        };
        CHECK_THROWS_AS(train(), Error);
        slots = held() - before;
        // It may have nothing to wait for.
        try {
          sharded.model.reset_iter_state();
        } catch (const comm::PeerError&) {
          CHECK(world.rank() != 2);
        }
      }
      // Operations that were issued and not carried out keep their slots until the world goes: the
      // gather ahead and the reduction.
      CHECK(held() - before <= slots / 2);
      ++num_destroyed;
      check(world.rank() != 2, "this rank fails");
    });
    CHECK(num_destroyed.load() == 3);
  }

  TEST_CASE("that another rank has failed is what is said, as often as it is asked") {
    std::atomic<int> num_under_way = 0;
    std::atomic<int> num_told = 0;
    comm::try_ranks({.num_ranks = 3}, [&](World& world) {
      ShardedChain sharded(world, 3);
      sharded.model.set_is_last_backward(false);
      sharded.step(0);
      sharded.unit(1).unshard(true);
      ++num_under_way;
      num_under_way.notify_all();
      if (world.rank() == 2) {
        for (int seen = 0; seen < 3; seen = num_under_way.load()) {
          num_under_way.wait(seen);
        }
        fail("this rank fails");
      }
      CHECK_THROWS_AS(world.control().issue(comm::barrier()).wait(), comm::PeerError);
      // A gather and a reduction are under way.
      for (int i = 0; i < 2; ++i) {
        CHECK_THROWS_AS(sharded.unit(1).unshard(), comm::PeerError);
        CHECK_THROWS_AS(sharded.loss(1), comm::PeerError);
        CHECK_THROWS_AS(sharded.model.zero_grad(), comm::PeerError);
        CHECK_THROWS_AS(sharded.model.reset_iter_state(), comm::PeerError);
        CHECK_THROWS_AS(sharded.unit(1).reshard(), comm::PeerError);
      }
      ++num_told;
    });
    CHECK(num_told.load() == 2);
  }

  TEST_CASE("ranks that shard in different orders are told so, and none waits") {
    CHECK_THROWS_WITH_AS(
        comm::run_ranks({.num_ranks = 2},
                        [](World& world) {
                          const std::size_t first = world.rank() == 0 ? 0 : 1;
                          ShardedChain sharded(world, 2, {}, {}, {{first}, {1 - first}});
                          sharded.step(0);
                        }),
        Contains("group"), comm::MismatchError);
  }
}

}  // namespace fsdptrain::shard
