#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tests/support/sharded_chain.h"

namespace fsdptrain::shard {
namespace {

using comm::World;
using testing::Chain;
using testing::ChainLoss;
using testing::Values;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// In the next wider arithmetic.
double naive_norm(const Values& gradients, double p) {
  long double sum = 0;
  for (const auto& [name, values] : gradients) {
    for (const double value : values) {
      const long double size = std::abs(static_cast<long double>(value));
      sum = std::isinf(p) ? std::max(sum, size) : sum + std::pow(size, static_cast<long double>(p));
    }
  }
  return static_cast<double>(std::isinf(p) ? sum : std::pow(sum, 1 / static_cast<long double>(p)));
}

// A chain in float64, of which one block may be frozen, sharded by blocks.
struct Float64Chain {
  Float64Chain(World& world, const std::vector<nn::ParameterRule>& rules)
      : rank(world.rank()),
        model(chain, world.group(), {.dtype = DType::Float64, .seed = 5, .rules = rules}) {
    for (const auto& block : chain.blocks) {
      model.fully_shard(*block, {.gradient_divide_factor = 1});
    }
    model.fully_shard(chain, {.gradient_divide_factor = 1});
  }

  void step(int number) {
    model.zero_grad();
    autograd::backward(ChainLoss{}(chain, rank, number, DType::Float64));
  }

  int rank;
  Chain chain{3};
  ShardedModel model;
};

// A parameter that one rank alone uses, and one that none does.
class Branching final : public nn::Module {
 public:
  explicit Branching(bool uses) : uses_extra(uses) {
    register_module("a", a);
    register_parameter("extra", extra, {.init = nn::Init::normal(0.1)});
    register_parameter("unused", unused, {.init = nn::Init::normal(0.1)});
  }

  nn::Linear a{{.in = 5, .out = 7, .standard_deviation = 0.5}};
  Tensor extra = nn::unplaced_parameter({7});
  Tensor unused = nn::unplaced_parameter({11});
  bool uses_extra;

 private:
  Tensor forward(const Tensor& x) override { return uses_extra ? ops::add(a(x), extra) : a(x); }
};

// Of the gradients of the same with no user.
double squares_without_extra(World& world) {
  Branching net(false);
  ShardedModel model(net, world.group(), {.seed = 5});
  model.fully_shard(net, {.gradient_divide_factor = 1});
  autograd::backward(ops::sum(net(testing::batch_of(world.rank(), 0, DType::Float32))));
  return std::pow(model.gradient_norm().item(), 2);
}

}  // namespace

TEST_SUITE("shard/sharded_model norm") {
  TEST_CASE("norms over shards are those of one rank, with ranks that own nothing") {
    const std::vector<nn::ParameterRule> rule{{.pattern = "blocks.1.*", .trainable = false}};
    for (const int num_ranks : {1, 2, 3, 4, 7}) {
      for (const auto& rules : {std::vector<nn::ParameterRule>(), rule}) {
        CAPTURE(num_ranks);
        CAPTURE(rules.size());
        comm::run_ranks({.num_ranks = num_ranks}, [&](World& world) {
          Float64Chain sharded(world, rules);
          testing::Unsharded<Chain, ChainLoss> whole(
              {.dtype = DType::Float64, .seed = 5, .rules = rules}, 3);
          for (int step = 0; step < 2; ++step) {
            // The second step leaves a block without a gradient, and what was there before.
            sharded.chain.route = whole.model().route =
                step == 0 ? std::vector<std::size_t>() : std::vector<std::size_t>{0, 1};
            sharded.step(step);
            const Values gradients = whole.sum_of_gradients(world.size(), step);
            for (const double p : {0.5, 1.0, 2.0, 3.0, kInfinity}) {
              CAPTURE(p);
              const double expected = naive_norm(gradients, p);
              const double found = sharded.model.gradient_norm(p).item();
              CHECK(std::abs(found - expected) <= 1e-12 * expected);
            }
          }
        });
      }
    }
  }

  TEST_CASE("a parameter that some rank uses has a gradient on all, one that none uses on none") {
    for (const int user : {0, 1, 2}) {
      CAPTURE(user);
      comm::run_ranks({.num_ranks = 3}, [&](World& world) {
        Branching net(world.rank() == user);
        ShardedModel model(net, world.group(), {.seed = 5});
        model.fully_shard(net, {.gradient_divide_factor = 1});
        for (const bool by_norm : {true, false}) {
          CAPTURE(by_norm);
          model.zero_grad();
          const Tensor y = net(testing::batch_of(world.rank(), 0, DType::Float32));
          autograd::backward(ops::sum(y));
          if (by_norm) {
            // Each of the user's four rows adds 1 to each of the seven; the others' are of a.
            const double all = model.gradient_norm().item();
            CHECK(all * all == doctest::Approx(squares_without_extra(world) + 7 * 16));
          } else {
            model.mark_active_segments();
          }
          for (const nn::Segment& segment : model.chunks().at(0).segments) {
            CHECK_MESSAGE(segment.active == (segment.name != "unused"), segment.name);
          }
        }
      });
    }
  }

  TEST_CASE("a norm is one reduction, of one number and one for each parameter") {
    comm::run_ranks({.num_ranks = 3}, [](World& world) {
      Float64Chain sharded(world, {});
      sharded.step(0);
      for (const double p : {2.0, kInfinity}) {
        const auto before = comm::read_flight_ring(world.flight_ring().memory().descriptor(), "");
        sharded.model.gradient_norm(p);
        const auto after = comm::read_flight_ring(world.flight_ring().memory().descriptor(), "");
        CHECK(after.records.back().number == before.records.back().number + 1);
        CHECK(static_cast<comm::Op>(after.records.back().op) == comm::Op::AllReduce);
        CHECK(after.records.back().count == 1 + sharded.chain.parameters().size());
      }
    });
  }

  TEST_CASE("clipping scales down to the norm asked for, and never up") {
    comm::run_ranks({.num_ranks = 2}, [](World& world) {
      Float64Chain sharded(world, {});
      sharded.step(0);
      const double norm = sharded.model.gradient_norm().item();
      const ShardedModel::Clipped clipped = sharded.model.clip_grad_norm(norm / 3);
      CHECK(clipped.norm.item() == norm);
      CHECK(clipped.scale.item() == doctest::Approx(1.0 / 3).epsilon(1e-5));
      CHECK(sharded.model.clip_grad_norm(2 * norm).scale.item() == 1);
      const ShardedModel::Clipped largest = sharded.model.clip_grad_norm(1e-3, kInfinity);
      CHECK(largest.norm.item() < norm);
      CHECK(largest.norm.item() * largest.scale.item() == doctest::Approx(1e-3).epsilon(1e-3));
    });
  }

  TEST_CASE("a NaN on one rank is the norm of all, for every p") {
    comm::run_ranks({.num_ranks = 3}, [](World& world) {
      Float64Chain sharded(world, {});
      sharded.step(0);
      if (world.rank() == 1) {
        const nn::FlatChunk& chunk = sharded.model.chunks()[0];
        REQUIRE_FALSE(chunk.segments.empty());
        Tensor gradients = chunk.gradients;
        gradients.set_item(chunk.segments[0].begin, std::nan(""));
      }
      for (const double p : {0.5, 2.0, kInfinity}) {
        CAPTURE(p);
        CHECK(std::isnan(sharded.model.gradient_norm(p).item()));
      }
      CHECK_THROWS_AS(sharded.model.gradient_norm(0), ConfigError);
    });
  }
}

}  // namespace fsdptrain::shard
