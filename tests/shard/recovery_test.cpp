#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "comm/run_ranks.h"
#include "models/parallelize.h"
#include "runtime/autograd/engine.h"
#include "runtime/autograd/meta.h"
#include "runtime/autograd/recompute.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/optim/adamw.h"
#include "tests/support/replicated.h"
#include "tests/support/tiny_decoders.h"

// A step that fails, wherever it does: the next one is that of a model to which nothing happened.
namespace fsdptrain::testing {
namespace {

using comm::World;
using doctest::Contains;
using shard::Accumulation;

constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

// The points that a step passes, one of which may be where it fails.
class Points {
 public:
  void pass(const std::string& name) {
    names_.push_back(name);
    check(names_.size() != failing_ + 1, "planted at {}", name);
  }
  void fail_at(std::size_t number) {
    names_.clear();
    failing_ = number;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::size_t failing_ = kNowhere;
};

// What is wrong with the data of a step, or with its call.
enum class Wrong { Nothing, Tokens, Targets, GradOutput };

struct Setup {
  bool is_llama = false;
  nn::Recompute recompute = nn::Recompute::Full;
  Accumulation accumulation = Accumulation::Sharded;
  bool replicated = false;
  int num_micro_batches = 2;
};

// A decoder in training, with points before, within and after each of its parts.
struct Training {
  Training(World& of, const Setup& setup)
      : world(of),
        num_micro_batches(setup.num_micro_batches),
        axes(of, setup.replicated),
        model(make_model(setup.is_llama)),
        watched(*this),
        sharded(*model, axes.shards,
                {.seed = 5, .replicas = axes.replicas, .accumulation = setup.accumulation}) {
    models::parallelize(*model, sharded);
    model->set_block_recompute(setup.recompute);
    // Between the hooks of sharding and what is computed.
    watch("in ");
    optimizer.emplace(sharded.chunks(), optim::AdamW::Options{});
  }

  static std::unique_ptr<models::Decoder> make_model(bool is_llama) {
    if (is_llama) {
      return std::make_unique<models::Llama>(tiny_llama(false));
    }
    return std::make_unique<models::Gpt2>(tiny_gpt2());
  }

  void watch(const std::string& where) {
    std::vector<std::pair<std::string, nn::Module*>> parts{{"the model", model.get()}};
    for (nn::Module* const block : model->blocks()) {
      parts.emplace_back("block " + std::to_string(parts.size() - 1), block);
    }
    for (const auto& [part, module] : parts) {
      const std::string name = where + part;
      module->add_hooks(
          {.pre_forward = [this,
                           name](auto& /*inputs*/) { points.pass(name + ", before" + replay()); },
           .post_forward =
               [this, name](nn::Module::Tensors& outputs) {
                 points.pass(name + ", behind" + replay());
                 if (!autograd::replaying()) {
                   outputs[0].autograd_meta()->pre_backward_hooks.emplace_back(
                       [this, name] { points.pass(name + ", before its backward"); });
                 }
               },
           .owner = this});
    }
  }
  static std::string replay() { return autograd::replaying() ? " in a replay" : ""; }

  Tensor loss(int batch, Wrong wrong) {
    const Tensor tokens = tiny_tokens(world.rank(), batch);
    const Tensor targets = tiny_tokens(world.rank(), batch + 50);
    if (wrong == Wrong::Tokens || wrong == Wrong::Targets) {
      (wrong == Wrong::Tokens ? tokens : targets).mutable_values<std::int64_t>()[3] = 1000;
    }
    RandomKeys& random = current_context().random;
    random.step = static_cast<std::uint64_t>(batch);
    random.first_sample = static_cast<std::uint64_t>(2 * world.rank());
    return model->loss(models::one_document(tokens), targets,
                       {.loss_scale = 0.1, .form = ops::HeadForm::GradientInForward});
  }

  // What is wrong is so in the second micro-batch.
  void step(int number, Wrong wrong = Wrong::Nothing) {
    sharded.zero_grad();
    for (int i = 0; i < num_micro_batches; ++i) {
      sharded.set_is_last_backward(i + 1 == num_micro_batches);
      const Wrong wrong_here = i == 1 ? wrong : Wrong::Nothing;
      const Tensor total = loss(num_micro_batches * number + i, wrong_here);
      points.pass("between forward and backward");
      autograd::BackwardOptions options;
      if (wrong_here == Wrong::GradOutput) {
        options.grad_output = Tensor::full(total.shape(), 2);
      }
      autograd::backward(total, options);
      points.pass("behind the backward");
    }
    const auto clipped = sharded.clip_grad_norm(0.5);
    points.pass("behind the norm");
    optimizer->step(sharded.chunks(), 0.01, clipped.scale);
    sharded.bump_epoch();
  }

  std::vector<std::vector<double>> parameters() {
    std::vector<std::vector<double>> all;
    for (const nn::FlatChunk& chunk : sharded.chunks()) {
      all.push_back(chunk.parameters.to_vector());
    }
    return all;
  }

  void expect_rest() {
    CHECK(sharded.pool().idle());
    for (const auto& unit : sharded.units()) {
      CHECK_FALSE(unit->group().unsharded());
      CHECK(unit->group().gradients_are_final());
      CHECK(unit->group().current_invocation().id == 0);
    }
  }

  // Around the hooks of sharding, which come after it.
  struct Around {
    explicit Around(Training& of) { of.watch("around "); }
  };

  World& world;
  int num_micro_batches;
  Points points;
  DataParallelAxes axes;
  std::unique_ptr<models::Decoder> model;
  Around watched;
  shard::ShardedModel sharded;
  std::optional<optim::AdamW> optimizer;
};

std::vector<std::string> points_of(const Setup& setup) {
  std::vector<std::string> names;
  comm::run_ranks({.num_ranks = 1}, [&](World& world) {
    Training training(world, setup);
    training.step(0);
    names = training.points.names();
  });
  return names;
}

constexpr int kNumSteps = 2;

// What a rank has after steps that come after one that failed, or after nothing.
struct Outcome {
  std::vector<std::vector<std::vector<double>>> parameters;
  std::optional<shard::SlotPlan> plan;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome train_on(Training& training) {
  Outcome outcome;
  for (int number = 1; number <= kNumSteps; ++number) {
    training.step(number);
    outcome.parameters.push_back(training.parameters());
  }
  outcome.plan = training.sharded.pool().plan();
  return outcome;
}

// Of ranks to which nothing happened.
std::vector<Outcome> outcomes_of(const Setup& setup, int num_ranks) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(num_ranks));
  comm::run_ranks({.num_ranks = num_ranks}, [&](World& world) {
    Training training(world, setup);
    outcomes[static_cast<std::size_t>(world.rank())] = train_on(training);
  });
  return outcomes;
}

void expect_recovery(Training& training, const std::vector<Outcome>& clean) {
  training.sharded.reset_iter_state();
  training.expect_rest();
  training.points.fail_at(kNowhere);
  const Outcome outcome = train_on(training);
  // Slots are held no longer, too.
  CHECK(outcome == clean[static_cast<std::size_t>(training.world.rank())]);
  training.expect_rest();
  CHECK(training.sharded.pool().num_unplanned() == 0);
}

// At every `stride`-th point.
void expect_recovery(const Setup& setup, int num_ranks, std::size_t stride) {
  const std::vector<std::string> names = points_of(setup);
  CHECK(names.size() / stride >= 10);
  const std::vector<Outcome> clean = outcomes_of(setup, num_ranks);
  for (std::size_t point = 0; point < names.size(); point += stride) {
    CAPTURE(names[point]);
    comm::run_ranks({.num_ranks = num_ranks}, [&](World& world) {
      Training training(world, setup);
      training.points.fail_at(point);
      const std::string text = "planted at " + names[point];
      CHECK_THROWS_WITH_AS(training.step(0), Contains(text.c_str()), Error);
      expect_recovery(training, clean);
    });
  }
}

}  // namespace

TEST_SUITE("shard/recovery") {
  TEST_CASE("after a step that failed at any point the next ones are clean, bit for bit") {
    expect_recovery({}, 1, 4);
    expect_recovery({}, 2, 2);
  }

  TEST_CASE("so they are with exact sums, replicas, and parts of the activations kept") {
    expect_recovery({.is_llama = true,
                     .recompute = nn::Recompute::Selective,
                     .accumulation = Accumulation::Exact,
                     .num_micro_batches = 3},
                    2, 7);
    expect_recovery({.recompute = nn::Recompute::None, .replicated = true}, 2, 5);
  }

  TEST_CASE("so they are after errors of ops, in the embedding, in the head and in its backward") {
    for (const bool is_llama : {false, true}) {
      const Setup setup{.is_llama = is_llama};
      const std::vector<Outcome> clean = outcomes_of(setup, 2);
      for (const Wrong wrong : {Wrong::Tokens, Wrong::Targets, Wrong::GradOutput}) {
        CAPTURE(static_cast<int>(wrong));
        comm::run_ranks({.num_ranks = 2}, [&](World& world) {
          Training training(world, setup);
          CHECK_THROWS_AS(training.step(0, wrong), Error);
          expect_recovery(training, clean);
        });
      }
    }
  }

  TEST_CASE("so they are after steps that failed in a row, and after updates") {
    comm::run_ranks({.num_ranks = 2}, [](World& world) {
      Training training(world, {});
      Training clean(world, {});
      for (int number = 0; number < 4; ++number) {
        training.step(number);
        clean.step(number);
        for (const std::size_t point : {40U, 3U, 21U}) {
          training.points.fail_at(point);
          CHECK_THROWS_AS(training.step(77), Error);
          training.sharded.reset_iter_state();
        }
        training.points.fail_at(kNowhere);
        CHECK(training.parameters() == clean.parameters());
      }
    });
  }

  TEST_CASE("where one of four ranks fails alone all end, and each error names it") {
    const std::vector<std::string> names = points_of({});
    for (std::size_t point = 0; point < names.size(); point += 4) {
      CAPTURE(names[point]);
      const auto errors = comm::try_ranks({.num_ranks = 4}, [&](World& world) {
        Training training(world, {});
        if (world.rank() == 2) {
          training.points.fail_at(point);
        }
        training.step(0);
        training.step(1);
      });
      for (std::size_t rank = 0; rank < errors.size(); ++rank) {
        const std::string text = comm::text_of(errors[rank]);
        const std::string expected = (rank == 2 ? "planted at " : "rank 2 failed: ");
        CHECK_MESSAGE(text.find(expected) != std::string::npos, text);
        CHECK_MESSAGE(text.find(names[point]) != std::string::npos, text);
      }
    }
  }

  TEST_CASE("a rank that goes on alone after it has failed is told, and so are the others") {
    const std::vector<std::string> names = points_of({});
    for (std::size_t point = 1; point < names.size(); point += 9) {
      CAPTURE(names[point]);
      const auto errors = comm::try_ranks({.num_ranks = 3}, [&](World& world) {
        Training training(world, {});
        if (world.rank() == 1) {
          training.points.fail_at(point);
          CHECK_THROWS_AS(training.step(0), Error);
          training.sharded.reset_iter_state();
          training.points.fail_at(kNowhere);
        }
        training.step(0);
        training.step(1);
      });
      for (const auto& error : errors) {
        CHECK_THROWS_AS(std::rethrow_exception(error), comm::CommError);
      }
    }
  }
}

}  // namespace fsdptrain::testing
