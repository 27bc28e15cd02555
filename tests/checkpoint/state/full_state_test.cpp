#include "checkpoint/state/full_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <utility>

#include <doctest/doctest.h>

#include "runtime/base/rank_context.h"
#include "runtime/nn/linear.h"
#include "tests/support/memory_files.h"
#include "tests/support/state_dicts.h"

// Whole tensors out of the parts of any number of ranks, and the other way.
namespace fsdptrain::testing {
namespace {

using checkpoint::ShardedEntry;
using checkpoint::StateEntry;
using checkpoint::StatePlanes;

const std::filesystem::path kFolder = "/checkpoints";

void on_ranks(int num_ranks, const std::function<void(comm::World&)>& body) {
  comm::run_ranks({.num_ranks = num_ranks}, body);
}

// Behind two steps: the same by what knows nothing of this, and whole.
struct Trained {
  Values expected;
  WholeState whole;
};

Trained train(Mode mode, int num_ranks) {
  Trained trained;
  on_ranks(num_ranks, [&](comm::World& world) {
    CheckpointRun program(world, mode);
    program.train_step(0);
    program.train_step(1);
    Values expected = tensors_only(all_state_of(program));
    WholeState whole = whole_state_of(world, program.state());
    CHECK(whole.empty() == (world.rank() > 0));
    if (world.rank() == 0) {
      trained = {.expected = std::move(expected), .whole = std::move(whole)};
    }
  });
  return trained;
}

void expect_loaded(Mode mode, int num_ranks, const Trained& trained) {
  CAPTURE(num_ranks);
  on_ranks(num_ranks, [&](comm::World& world) {
    CheckpointRun program(world, mode, 77);
    load_whole_state(world, program.state(), trained.whole);
    const Values loaded = all_state_of(program);
    if (world.rank() == 0) {
      CHECK(num_different_bits(trained.expected, tensors_only(loaded)) == 0);
    }
    for (const auto& [name, value] : loaded) {
      CHECK((!name.starts_with("step ") || value[0] == 2));
    }
    if (mode == Mode::Replicated) {
      // Each has all of it.
      CHECK(num_different_bits(trained.expected, tensors_only(loaded)) == 0);
    }
  });
}

void expect_round_trips(Mode mode) {
  for (const int from : {1, 2, 3, 5}) {
    CAPTURE(from);
    const Trained trained = train(mode, from);
    CHECK(trained.expected.size() > 30);
    CHECK(num_different_bits(trained.expected, values_of(trained.whole)) == 0);
    for (const WholeEntry& one : trained.whole) {
      CHECK(one.entry.updates ==
            (one.entry.trained ? std::optional<std::int64_t>(2) : std::nullopt));
    }
    for (const int to : {1, 2, 4}) {
      expect_loaded(mode, to, trained);
    }
  }
}

// Of all ranks' windows.
Values put_together(comm::World& world, const checkpoint::TrainingState& state, Values& values,
                    std::mutex& mutex) {
  for (const ShardedEntry& one : checkpoint::sharded_state(state)) {
    const std::vector<double> part = one.values.to_vector();
    const std::lock_guard lock(mutex);
    std::vector<double>& whole = values[one.entry.plane + " " + one.entry.name];
    whole.resize(static_cast<std::size_t>(one.entry.shape.numel()));
    REQUIRE(one.elements.size() == static_cast<std::int64_t>(part.size()));
    std::ranges::copy(part, whole.begin() + one.elements.begin);
  }
  world.exchange("it is there");
  return values;
}

// One matrix that is larger than what ranks say to each other.
class WideModel {
 public:
  static constexpr std::int64_t kNbytes = std::int64_t{512} * 64 * 4;

  explicit WideModel(comm::World& world)
      : linear_({.in = 64, .out = 512, .bias = false}),
        sharded_(linear_, world.group(), {.seed = 1}) {
    sharded_.fully_shard(linear_);
  }
  checkpoint::TrainingState state() { return {.model = &sharded_}; }

 private:
  nn::Linear linear_;
  shard::ShardedModel sharded_;
};
constexpr std::int64_t kMessages = 4096;

// Bytes above what is in use before and behind it.
std::int64_t peak_of(comm::World& world, const std::function<void()>& action) {
  Allocator& allocator = current_context().allocator(Device::cpu());
  world.exchange("now");
  const std::int64_t before = allocator.counters().live_total;
  allocator.reset_peaks();
  action();
  CHECK(allocator.counters().live_total == before);
  return allocator.counters().peak_total - before;
}

TEST_SUITE("checkpoint/state/full_state") {
  TEST_CASE("a sharded state is whole and comes back on any number of ranks") {
    expect_round_trips(Mode::Sharded);
  }
  TEST_CASE("a replicated state is whole and comes back on any number of ranks") {
    expect_round_trips(Mode::Replicated);
  }
  TEST_CASE("a state of mixed dtypes is whole and comes back on any number of ranks") {
    expect_round_trips(Mode::MixedDTypes);
  }
  TEST_CASE("a state with frozen parameters is whole and comes back on any number of ranks") {
    expect_round_trips(Mode::Frozen);
  }
  TEST_CASE("a state with tied parameters is whole and comes back on any number of ranks") {
    expect_round_trips(Mode::Tied);
  }

  TEST_CASE("what replicas have loads sharded, and the other way round") {
    expect_loaded(Mode::Sharded, 3, train(Mode::Replicated, 2));
    expect_loaded(Mode::Replicated, 2, train(Mode::Sharded, 3));
  }

  TEST_CASE("with the option every rank gets all of it, the same bits") {
    for (const Mode mode : {Mode::Sharded, Mode::MixedDTypes, Mode::Replicated}) {
      on_ranks(5, [&](comm::World& world) {
        CheckpointRun program(world, mode);
        program.train_step(0);
        const WholeState of_root = whole_state_of(world, program.state());
        const WholeState of_all = whole_state_of(world, program.state(), {.on_all_ranks = true});
        std::string bits;
        for (const auto& [name, values] : values_of(of_all)) {
          bits += fmt::format("{} {}\n", name, fmt::join(values, " "));
        }
        for (const std::string& other : world.exchange(bits)) {
          CHECK(other == bits);
        }
        if (world.rank() == 0) {
          CHECK(num_different_bits(values_of(of_root), values_of(of_all)) == 0);
        }
      });
    }
  }

  TEST_CASE("planes can be chosen, and what is not chosen stays as it is") {
    const Trained trained = train(Mode::Frozen, 2);
    const std::map<std::string, StatePlanes> choices = {
        {"parameters", {.optimizer = false, .average = false}},
        {"exp_avg", {.parameters = false, .average = false}},
        {"average", {.parameters = false, .optimizer = false}}};
    for (const auto& choice : choices) {
      const std::string& chosen = choice.first;
      on_ranks(3, [&](comm::World& world) {
        CheckpointRun program(world, Mode::Frozen, 77);
        const Values before = all_state_of(program);
        load_whole_state(world, program.state(), trained.whole, {.planes = choice.second});
        const Values after = all_state_of(program);
        for (const auto& [name, values] : after) {
          const bool is_chosen =
              name.starts_with(chosen) || (name.starts_with("step ") && chosen == "exp_avg");
          if (name.starts_with("step ")) {
            CHECK(values[0] == (is_chosen ? 2 : 0));
          } else {
            CHECK(values == (is_chosen ? trained.expected.at(name) : before.at(name)));
          }
        }
        const WholeState part = whole_state_of(world, program.state(), {.planes = choice.second});
        for (const WholeEntry& one : part) {
          CHECK(one.entry.plane.starts_with(chosen));
        }
        CHECK(part.empty() == (world.rank() > 0));
      });
    }
  }

  TEST_CASE("a rank that gets tensors has memory of the largest more, and others have none") {
    for (const bool on_all_ranks : {false, true}) {
      on_ranks(3, [&](comm::World& world) {
        WideModel model(world);
        const std::int64_t more = peak_of(world, [&] {
          stream_full_state(world, model.state(), [](const auto&, const auto&) {},
                            {.on_all_ranks = on_all_ranks});
        });
        const bool is_given = on_all_ranks || world.rank() == 0;
        CHECK(more >= (is_given ? WideModel::kNbytes : 0));
        CHECK(more <= (is_given ? WideModel::kNbytes : 0) + kMessages);
      });
    }
  }

  TEST_CASE("a rank that receives its part of a whole state has no more memory for it") {
    on_ranks(3, [&](comm::World& world) {
      WideModel model(world);
      const WholeState whole = whole_state_of(world, model.state());
      const std::int64_t more =
          peak_of(world, [&] { load_whole_state(world, model.state(), whole); });
      CHECK(more >= (world.rank() == 0 ? WideModel::kNbytes : 0));
      CHECK(more <= (world.rank() == 0 ? WideModel::kNbytes : 0) + kMessages);
    });
  }

  TEST_CASE("a whole state loads the same as a checkpoint, and so do the steps behind it") {
    MemoryFiles files;
    WholeState whole;
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      program.train_step(0);
      program.train_step(1);
      checkpoint::Saver(files, world, program.state(), {.folder = kFolder, .async = false}).save(2);
      WholeState of_rank = whole_state_of(world, program.state());
      if (world.rank() == 0) {
        whole = std::move(of_rank);
      }
    });
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun by_file(world, Mode::Sharded, 77);
      CheckpointRun by_dict(world, Mode::Sharded, 78);
      REQUIRE(checkpoint::load_newest(files, world, by_file.state(), kFolder));
      load_whole_state(world, by_dict.state(), whole);
      by_dict.progress.value = by_file.progress.value;
      CHECK(num_different_bits(all_state_of(by_file), all_state_of(by_dict)) == 0);
      by_file.train_step(2);
      by_dict.train_step(2);
      CHECK(num_different_bits(all_state_of(by_file), all_state_of(by_dict)) == 0);
    });
  }

  TEST_CASE("parameters that are gathered when a whole state is loaded are gathered anew") {
    const Trained trained = train(Mode::Sharded, 2);
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun fresh(world, Mode::Sharded, 77);
      load_whole_state(world, fresh.state(), trained.whole);
      CheckpointRun program(world, Mode::Sharded, 77);
      for (const auto& unit : program.sharded->units()) {
        unit->set_reshard_after_backward(false);
      }
      program.compute_gradients(5);
      load_whole_state(world, program.state(), trained.whole);
      fresh.train_step(6);
      program.train_step(6);
      CHECK(num_different_bits(tensors_only(all_state_of(fresh)),
                               tensors_only(all_state_of(program))) == 0);
    });
  }

  TEST_CASE("windows of all ranks are the state, in the middle of a forward as well") {
    for (const Mode mode : {Mode::Sharded, Mode::MixedDTypes, Mode::Tied}) {
      Values at_rest;
      Values gathered;
      std::mutex mutex;
      on_ranks(5, [&](comm::World& world) {
        CheckpointRun program(world, mode);
        program.train_step(0);
        const Values expected = tensors_only(all_state_of(program));
        put_together(world, program.state(), at_rest, mutex);
        bool was_within = false;
        const auto look = [&](const nn::Module::Tensors&) {
          if (!std::exchange(was_within, true)) {
            put_together(world, program.state(), gathered, mutex);
          }
        };
        program.model().add_hooks(
            {.pre_forward = look, .post_forward = [](const auto&) {}, .owner = &was_within});
        program.compute_gradients(1);
        CHECK(was_within);
        if (world.rank() == 0) {
          CHECK(num_different_bits(expected, at_rest) == 0);
          CHECK(num_different_bits(expected, gathered) == 0);
        }
      });
    }
  }

  TEST_CASE("a window is on what is trained") {
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      for (const ShardedEntry& one :
           checkpoint::sharded_state(program.state(), {.optimizer = false, .average = false})) {
        const auto& chunks = program.sharded->chunks();
        CHECK(std::ranges::any_of(chunks, [&](const nn::FlatChunk& chunk) {
          return chunk.parameters.storage() == one.values.storage();
        }));
      }
    });
  }
}

}  // namespace
}  // namespace fsdptrain::testing
