#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/flight/reader.h"
#include "models/parallelize.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/optim/adamw.h"
#include "tests/support/block_chain.h"
#include "tests/support/replicated.h"
#include "tests/support/tiny_decoders.h"

// Data parallelism: each rank has all parameters, and gradients are added over the ranks.
namespace fsdptrain::testing {
namespace {

using comm::World;
using doctest::Contains;
using shard::ShardedModel;
using shard::ShardedUnit;

void on_replicas(const std::function<void(World&)>& body) {
  for (const int num_ranks : {2, 3, 4}) {
    CAPTURE(num_ranks);
    comm::run_ranks({.num_ranks = num_ranks}, body);
  }
}

// GPT-2, Llama with a tied embedding, Llama without.
std::unique_ptr<models::Decoder> make_decoder(int model) {
  if (model == 0) {
    return std::make_unique<models::Gpt2>(tiny_gpt2());
  }
  return std::make_unique<models::Llama>(tiny_llama(model == 1));
}

// What rank `rank` adds in a step of micro-batches: the same backwards on a model of one rank.
Values local_gradients(models::Decoder& model, FlatParameters& owner, int rank,
                       int num_micro_batches) {
  owner.zero_grad();
  for (int i = 0; i < num_micro_batches; ++i) {
    autograd::backward(tiny_loss(model, rank, i));
  }
  Values gradients;
  for (const nn::Segment& segment : owner.chunks()[0].segments) {
    gradients[segment.name] = owner.find(segment.name).gradient.to_vector();
  }
  return gradients;
}

double largest_of(const Values& values) {
  double largest = 0;
  for (const auto& [name, all] : values) {
    for (const double value : all) {
      largest = std::max(largest, std::abs(value));
    }
  }
  return largest;
}

double largest_difference(ShardedModel& model, const Values& expected) {
  double largest = 0;
  for (const auto& unit : model.units()) {
    const Difference found = difference_of(unit->group(), 0, Of::Gradients, expected);
    largest = found.largest <= largest ? largest : found.largest;
  }
  return largest;
}

// A chain of which every rank has all.
struct ReplicatedChain {
  explicit ReplicatedChain(World& of, const ShardedUnit::Options& options = {},
                           ShardedModel::Options model_options = {})
      : world(of),
        axes(of, true),
        chain(3),
        model(chain, axes.shards, with_replicas(model_options)) {
    for (const auto& block : chain.blocks) {
      model.fully_shard(*block, options);
    }
    model.fully_shard(chain, options);
  }

  ShardedModel::Options with_replicas(ShardedModel::Options options) const {
    options.seed = 5;
    options.replicas = axes.replicas;
    return options;
  }

  // Backwards of micro-batches from `first` on, of which the last one is said to be.
  void accumulate(int first, int num) {
    for (int i = first; i < first + num; ++i) {
      model.set_is_last_backward(i + 1 == first + num);
      backward(i);
    }
  }
  void backward(int batch) {
    autograd::backward(ChainLoss{}(chain, world.rank(), batch, DType::Float32));
  }
  ShardedUnit& root() { return *model.units().back(); }

  // What this rank has called since the last time, by name.
  std::string calls() {
    std::string names;
    const auto snapshot =
        comm::read_flight_ring(world.flight_ring().memory().descriptor(), "the ring of this rank");
    for (const comm::FlightRecord& record : snapshot.records) {
      const auto op = static_cast<comm::Op>(record.op);
      if (record.number >= calls_seen && op != comm::Op::CreateGroup) {
        names += fmt::format("{} {} of {}, ", comm::name_of(op), record.tag.group, record.count);
      }
      calls_seen = std::max(calls_seen, record.number + 1);
    }
    return names;
  }

  World& world;
  DataParallelAxes axes;
  Chain chain;
  ShardedModel model;
  std::uint64_t calls_seen = 0;
};

// Of all replicas, micro-batch `batch`, in the order in which they are added.
Values sum_over_replicas(Unsharded<Chain, ChainLoss>& whole, int num_ranks, int batch) {
  std::vector<Values> of_ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    of_ranks.push_back(whole.gradients_of(rank, batch));
  }
  return tree_sum(of_ranks, DType::Float32);
}

Values scaled(Values values, double factor) {
  for (auto& [name, all] : values) {
    for (double& value : all) {
      value *= factor;
    }
  }
  return values;
}

}  // namespace

TEST_SUITE("shard/replicas") {
  TEST_CASE("decoders have the gradients of one rank, in float32 bit for bit") {
    for (const int model : {0, 1, 2}) {
      for (const DType dtype : {DType::Float64, DType::Float32}) {
        for (const int num_micro_batches : {1, 3}) {
          CAPTURE(model);
          CAPTURE(dtype);
          CAPTURE(num_micro_batches);
          on_replicas([&](World& world) {
            const DataParallelAxes axes(world, true);
            const auto decoder = make_decoder(model);
            ShardedModel sharded(*decoder, axes.shards,
                                 {.dtype = dtype, .seed = 5, .replicas = axes.replicas});
            models::parallelize(*decoder, sharded, {.gradient_divide_factor = 1});
            const auto whole = make_decoder(model);
            FlatParameters owner(*whole, {.dtype = dtype, .seed = 5});
            for (int step = 0; step < 2; ++step) {
              sharded.zero_grad();
              for (int i = 0; i < num_micro_batches; ++i) {
                sharded.set_is_last_backward(i + 1 == num_micro_batches);
                autograd::backward(tiny_loss(*decoder, world.rank(), i));
              }
              std::vector<Values> of_ranks;
              for (int rank = 0; rank < world.size(); ++rank) {
                of_ranks.push_back(local_gradients(*whole, owner, rank, num_micro_batches));
              }
              const Values expected = tree_sum(of_ranks, dtype);
              const double bound = dtype == DType::Float64 ? 1e-12 * largest_of(expected) : 0;
              CHECK(largest_difference(sharded, expected) <= bound);
              CHECK(largest_of(expected) > 1e-3);
            }
          });
        }
      }
    }
  }

  TEST_CASE("a step of several backwards is one reduction of each group, in its gradients") {
    for (const std::optional<double> factor : {std::optional<double>(), std::optional(7.0)}) {
      on_replicas([&](World& world) {
        const MemoryCounters& counters = current_context().allocator(Device::cpu()).counters();
        ReplicatedChain replicated(world, {.gradient_divide_factor = factor});
        replicated.calls();
        const std::int64_t nbytes = counters.live_of(MemoryCategory::Gradient);
        for (int step = 0; step < 2; ++step) {
          replicated.model.zero_grad();
          replicated.model.set_is_last_backward(false);
          replicated.backward(0);
          replicated.backward(1);
          CHECK(replicated.calls().empty());
          replicated.model.set_is_last_backward(true);
          replicated.backward(2);
          CHECK(replicated.calls() ==
                "all_reduce 0 of 96, all_reduce 1 of 96, all_reduce 2 of 96, all_reduce 3 of 32, ");
          CHECK(counters.live_of(MemoryCategory::Gradient) == nbytes);
        }
        // No slot was asked for.
        CHECK_FALSE(replicated.model.pool().plan());
      });
    }
  }

  TEST_CASE("gradients are averaged over the replicas, or their sum is divided once") {
    for (const auto accumulation : {shard::Accumulation::Sharded, shard::Accumulation::Exact}) {
      on_replicas([&](World& world) {
        Unsharded<Chain, ChainLoss> whole({.seed = 5}, 3);
        const Values sum = sum_over_replicas(whole, world.size(), 0);
        for (const std::optional<double> factor :
             {std::optional<double>(), std::optional(1.0), std::optional(7.0),
              std::optional<double>(world.size())}) {
          ReplicatedChain replicated(world, {.gradient_divide_factor = factor},
                                     {.accumulation = accumulation});
          replicated.accumulate(0, 1);
          const Values expected = scaled(sum, 1 / factor.value_or(world.size()));
          CHECK(largest_difference(replicated.model, expected) <= 1e-6 * largest_of(expected));
        }
      });
    }
  }

  TEST_CASE("backwards after the last one add to what is there, with and without a new step") {
    on_replicas([](World& world) {
      Unsharded<Chain, ChainLoss> whole({.seed = 5}, 3);
      ReplicatedChain replicated(world, {.gradient_divide_factor = 1});
      for (int step = 0; step < 2; ++step) {
        replicated.model.zero_grad();
        Values expected;
        // Each of them is the last one, as for whoever never says which is.
        for (int i = 0; i < 3; ++i) {
          replicated.backward(i);
          expected = sum_of(expected, sum_over_replicas(whole, world.size(), i), DType::Float32);
          CHECK(largest_difference(replicated.model, expected) == 0);
        }
        // Of a part of the model only.
        replicated.chain.route = whole.model().route = {0, 2};
        replicated.backward(3);
        expected = sum_of(expected, sum_over_replicas(whole, world.size(), 3), DType::Float32);
        replicated.chain.route = whole.model().route = {};
        CHECK(largest_difference(replicated.model, expected) == 0);
      }
    });
  }

  TEST_CASE("a parameter that one replica uses has its gradient on all, and no older one") {
    on_replicas([](World& world) {
      Unsharded<Chain, ChainLoss> whole({.seed = 5}, 3);
      ReplicatedChain replicated(world, {.gradient_divide_factor = 1});
      replicated.accumulate(0, 1);
      replicated.model.gradient_norm();
      // Now block 1 is used by rank 1 alone, block 2 by none, and both have gradients of before.
      std::vector<Values> of_ranks;
      for (int rank = 0; rank < world.size(); ++rank) {
        whole.model().route =
            rank == 1 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{0};
        of_ranks.push_back(whole.gradients_of(rank, 1));
      }
      const Values expected = tree_sum(of_ranks, DType::Float32);
      replicated.model.zero_grad();
      replicated.chain.route = {0};
      if (world.rank() == 1) {
        replicated.chain.route.push_back(1);
      }
      replicated.accumulate(1, 1);
      double squares = 0;
      for (const auto& [name, values] : expected) {
        for (const double value : values) {
          squares += value * value;
        }
      }
      const double norm = replicated.model.gradient_norm().item();
      CHECK(std::abs(norm - std::sqrt(squares)) <= 1e-12 * norm);
      CHECK(largest_difference(replicated.model, expected) == 0);
      for (const nn::FlatChunk& chunk : replicated.model.chunks()) {
        for (const nn::Segment& segment : chunk.segments) {
          CHECK(segment.active == expected.contains(segment.name));
        }
      }
    });
  }

  TEST_CASE("the norm is that of each replica, whatever is agreed on by all of them") {
    on_replicas([](World& world) {
      ReplicatedChain replicated(world);
      replicated.accumulate(0, 2);
      replicated.calls();
      double squares = 0;
      double largest = 0;
      for (const nn::FlatChunk& chunk : replicated.model.chunks()) {
        for (const double value : chunk.gradients.to_vector()) {
          squares += value * value;
          largest = std::max(largest, std::abs(value));
        }
      }
      CHECK(replicated.model.gradient_norm().item() == doctest::Approx(std::sqrt(squares)));
      CHECK(replicated.calls() == "all_reduce 4 of 7, ");
      CHECK(replicated.model.gradient_norm(std::numeric_limits<double>::infinity()).item() ==
            largest);
    });
  }

  TEST_CASE("replicas that train have the parameters of one rank that averages") {
    on_replicas([](World& world) {
      ReplicatedChain replicated(world, {.gradient_divide_factor = 1});
      Unsharded<Chain, ChainLoss> whole({.seed = 5}, 3);
      optim::AdamW optimizer(replicated.model.chunks(), {});
      optim::AdamW oracle(whole.owner().chunks(), {});
      for (int step = 0; step < 3; ++step) {
        replicated.model.zero_grad();
        replicated.accumulate(step, 1);
        replicated.model.mark_active_segments();
        optimizer.step(replicated.model.chunks(), 0.05, {});
        replicated.model.bump_epoch();
        const Values sum = sum_over_replicas(whole, world.size(), step);
        whole.set_gradients(sum);
        oracle.step(whole.owner().chunks(), 0.05, {});
        whole.owner().bump_epoch();
        const Values values = whole.values();
        for (const auto& unit : replicated.model.units()) {
          CHECK(difference_of(unit->group(), 0, Of::Parameters, values).largest == 0);
        }
      }
    });
  }

  TEST_CASE("a reduce dtype of its own is what goes over the replicas, after each backward") {
    on_replicas([](World& world) {
      ReplicatedChain replicated(
          world, {.policy = {.param_dtype = DType::BFloat16, .reduce_dtype = DType::BFloat16}});
      replicated.calls();
      replicated.model.set_is_last_backward(false);
      replicated.backward(0);
      CHECK(replicated.calls().find("all_reduce 3 of 32, all_reduce 2 of 96") == 0);
      replicated.model.set_is_last_backward(true);
      replicated.backward(1);
      CHECK(replicated.calls().find("all_reduce 3 of 32, all_reduce 2 of 96") == 0);
      Unsharded<Chain, ChainLoss> whole({.seed = 5}, 3);
      const Values expected =
          scaled(sum_of(sum_over_replicas(whole, world.size(), 0),
                        sum_over_replicas(whole, world.size(), 1), DType::Float32),
                 1.0 / world.size());
      CHECK(largest_difference(replicated.model, expected) <= 0.05 * largest_of(expected));
    });
  }

  TEST_CASE(
      "without sync gradients stay each rank's, and are not final, until a backward with it") {
    on_replicas([](World& world) {
      Unsharded<Chain, ChainLoss> whole({.seed = 5}, 3);
      ReplicatedChain replicated(world, {.gradient_divide_factor = 1});
      replicated.calls();
      replicated.root().set_requires_gradient_sync(false);
      replicated.backward(0);
      CHECK(replicated.calls().empty());
      CHECK_THROWS_WITH_AS(replicated.model.gradient_norm(),
                           Contains("the gradients of blocks.0 are not final"), AutogradError);
      replicated.root().set_requires_gradient_sync(true);
      replicated.backward(1);
      const Values expected = sum_of(sum_over_replicas(whole, world.size(), 0),
                                     sum_over_replicas(whole, world.size(), 1), DType::Float32);
      CHECK(largest_difference(replicated.model, expected) <= 1e-5 * largest_of(expected));
      CHECK(replicated.model.gradient_norm().item() > 0);
    });
  }

  TEST_CASE("both axes above one are refused, and replicas of one rank are none") {
    comm::run_ranks({.num_ranks = 4}, [](World& world) {
      Chain chain(1);
      const int pair = world.rank() / 2;
      const auto shards = world.new_group({2 * pair, 2 * pair + 1}, "shard");
      const auto replicas = world.new_group({world.rank() % 2, world.rank() % 2 + 2}, "replicate");
      CHECK_THROWS_WITH_AS(
          ShardedModel(chain, *shards, {.replicas = replicas.get()}),
          Contains("2 replicas of a model that is sharded over 2 ranks: hybrid sharding is not "
                   "there yet"),
          ConfigError);
    });
    comm::run_ranks({.num_ranks = 1}, [](World& world) {
      ReplicatedChain replicated(world);
      replicated.accumulate(0, 2);
      CHECK(replicated.model.gradient_norm().item() > 0);
      CHECK(replicated.calls().empty());
    });
  }
}

}  // namespace fsdptrain::testing
