#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <stdexcept>

#include <doctest/doctest.h>

#include "checkpoint/state/full_state.h"
#include "runtime/base/error.h"
#include "tests/support/state_dicts.h"

// What ranks do about a whole state that one of them cannot take or give: the same.
namespace fsdptrain::testing {
namespace {

using checkpoint::FullStateSource;
using checkpoint::StateEntry;
using checkpoint::stream_full_state;
using doctest::Contains;

void on_ranks(int num_ranks, const std::function<void(comm::World&)>& body) {
  comm::run_ranks({.num_ranks = num_ranks}, body);
}

const FullStateSource kNothing;

WholeState whole_of(Mode mode) {
  WholeState whole;
  on_ranks(1, [&](comm::World& world) {
    CheckpointRun program(world, mode);
    program.train_step(0);
    whole = whole_state_of(world, program.state());
  });
  return whole;
}

// Of type E, the same text on all ranks.
template <class E>
std::string error_of_all(comm::World& world, const std::function<void()>& action) {
  std::string text = "no error";
  try {
    action();
  } catch (const E& error) {
    text = error.what();
  }
  for (const std::string& other : world.exchange(text)) {
    CHECK(other == text);
  }
  return text;
}

// Of the load of a state that is none of the program's.
template <class E>
void expect_load_refused(const WholeState& whole, Mode mode,
                         const std::vector<std::string>& lines) {
  on_ranks(3, [&](comm::World& world) {
    CheckpointRun program(world, mode, 77);
    const Values before = all_state_of(program);
    const std::string text =
        error_of_all<E>(world, [&] { load_whole_state(world, program.state(), whole); });
    for (const std::string& line : lines) {
      CHECK_MESSAGE(text.find(line) != std::string::npos, text);
    }
    CHECK(num_different_bits(before, all_state_of(program)) == 0);
  });
}

WholeEntry& entry_of(WholeState& whole, const std::string& plane, const std::string& name) {
  return *std::ranges::find_if(whole, [&](const WholeEntry& one) {
    return one.entry.plane == plane && one.entry.name == name;
  });
}

TEST_SUITE("checkpoint/state/full_state_errors") {
  TEST_CASE("states of an optimizer without a right count of updates are refused, all by name") {
    WholeState whole = whole_of(Mode::Sharded);
    const auto optimizers = [&](auto& found, int wanted) {
      for (WholeEntry& one : whole) {
        const std::string& plane = one.entry.plane;
        if (plane != checkpoint::kParameters && plane != checkpoint::kAverage && wanted-- == 0) {
          found = &one.entry;
        }
      }
    };
    StateEntry* none = nullptr;
    StateEntry* negative = nullptr;
    StateEntry* other = nullptr;
    optimizers(none, 0);
    optimizers(negative, 2);
    optimizers(other, 4);
    none->updates.reset();
    negative->updates = -7;
    *other->updates += 1;
    expect_load_refused<ConfigError>(
        whole, Mode::Sharded,
        {none->name + " has no count of updates", negative->name + " has -7 updates",
         fmt::format("of {} has {} updates, and another state of that parameter {}", other->name,
                     *other->updates - 1, *other->updates)});
  }

  TEST_CASE("ranks that load other planes, or a source with names of no text, are told apart") {
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded, 77);
      FullStateSource source;
      source.entries.emplace_back().name = "bad\xff";
      const FullStateSource* const mine = world.rank() == 0 ? &source : nullptr;
      const std::string planes = error_of_all<ConfigError>(world, [&] {
        load_full_state(world, program.state(), mine == nullptr ? nullptr : &kNothing,
                        {.planes = {.optimizer = world.rank() != 2}});
      });
      CHECK_MESSAGE(planes.find("rank 2 has other tensors than rank 0") != std::string::npos,
                    planes);
      const std::string text =
          error_of_all<ConfigError>(world, [&] { load_full_state(world, program.state(), mine); });
      CHECK_MESSAGE(text.find("a name that is not UTF-8") != std::string::npos, text);
    });
  }

  TEST_CASE("a sink that throws what is no exception ends all ranks") {
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      const std::string text = error_of_all<Error>(world, [&] {
        stream_full_state(world, program.state(),
                          [](const StateEntry& /*entry*/, const Tensor& /*values*/) { throw 42; });
      });
      CHECK(text == "rank 0: what was thrown is no std::exception");
    });
  }

  TEST_CASE("a sink that throws is an error of all ranks, of its type, at the end of all tensors") {
    for (const bool on_all_ranks : {false, true}) {
      on_ranks(3, [&](comm::World& world) {
        CheckpointRun program(world, Mode::Sharded);
        const int failing = on_all_ranks ? 2 : 0;
        int num_calls = 0;
        const auto sink = [&](const StateEntry& entry, const Tensor& /*values*/) {
          ++num_calls;
          check<DataError>(world.rank() != failing || num_calls < 3, "the sink refuses {}",
                           entry.name);
        };
        const std::string text = error_of_all<DataError>(world, [&] {
          stream_full_state(world, program.state(), sink, {.on_all_ranks = on_all_ranks});
        });
        CHECK_MESSAGE(text.starts_with(fmt::format("rank {}: the sink refuses", failing)), text);
        if (world.rank() == failing) {
          CHECK(num_calls == 3);
        } else {
          CHECK(num_calls ==
                (on_all_ranks ? static_cast<int>(checkpoint::sharded_state(program.state()).size())
                              : 0));
        }
        // Nothing of it is left.
        CHECK(whole_state_of(world, program.state()).empty() == (world.rank() > 0));
      });
    }
  }

  TEST_CASE("of several sinks that throw the first rank's error is that of all") {
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Replicated);
      const auto sink = [&](const StateEntry&, const Tensor&) {
        if (world.rank() == 2) {
          fail<DataError>("it is rank {}", 2);
        }
        if (world.rank() == 1) {
          throw std::runtime_error("no error of the library");
        }
      };
      CHECK(error_of_all<Error>(world, [&] {
              stream_full_state(world, program.state(), sink, {.on_all_ranks = true});
            }) == "rank 1: no error of the library");
    });
  }

  TEST_CASE("ranks that want other tensors are told so") {
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      const auto text = error_of_all<ConfigError>(world, [&] {
        stream_full_state(world, program.state(), [](const auto&, const auto&) {},
                          {.on_all_ranks = world.rank() == 1});
      });
      CHECK(text.find("rank 1 has other tensors than rank 0, or wants others") !=
            std::string::npos);
    });
  }

  TEST_CASE("all that is missing, extra or does not fit is listed, and nothing is changed") {
    WholeState whole = whole_of(Mode::Sharded);
    const std::string norm = "model.norm.weight";
    const std::string embedding = "model.embed_tokens.weight";
    std::erase_if(whole, [&](const WholeEntry& one) {
      return one.entry.plane == "exp_avg" && one.entry.name == norm;
    });
    entry_of(whole, "average", norm).entry.shape = Shape{1, 2};
    entry_of(whole, "exp_avg_sq", norm).entry.dtype = DType::BFloat16;
    whole.push_back({.entry = {.name = "another", .shape = {1}}, .bytes = {}});
    whole.push_back({.entry = {.plane = "momentum", .name = norm, .shape = {1}}, .bytes = {}});
    entry_of(whole, "parameters", embedding).entry.dtype = DType::Float64;
    expect_load_refused<ConfigError>(
        whole, Mode::Sharded,
        {"full state: it does not fit what is trained: ", "exp_avg of " + norm + " is missing",
         "average of " + norm + " has shape [1, 2], not ",
         "exp_avg_sq of " + norm + " is bfloat16, not float32", embedding + " is float64, not",
         "another is of no parameter of the model", "momentum of " + norm + " has no place here"});
  }

  TEST_CASE("an entry that is there twice is refused") {
    WholeState whole = whole_of(Mode::Sharded);
    whole.push_back(whole.front());
    expect_load_refused<ConfigError>(whole, Mode::Sharded, {"the source has ", " twice"});
  }

  TEST_CASE("moments of what is frozen here have no place") {
    expect_load_refused<ConfigError>(whole_of(Mode::Sharded), Mode::Frozen,
                                     {"exp_avg of model.norm.weight has no place here"});
  }

  TEST_CASE("another dtype is converted only where that is asked for, to the nearest value") {
    const WholeState whole = whole_of(Mode::Float64);
    expect_load_refused<ConfigError>(whole, Mode::Sharded,
                                     {"model.embed_tokens.weight is float64, not float32"});
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded, 77);
      load_whole_state(world, program.state(), whole, {.convert_dtypes = true});
      const Values given = values_of(whole);
      for (const auto& [name, values] : tensors_only(all_state_of(program))) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          CHECK(values[i] == static_cast<double>(static_cast<float>(given.at(name)[i])));
        }
      }
    });
  }

  TEST_CASE("a source that throws is an error of all ranks, behind what was loaded before") {
    const WholeState whole = whole_of(Mode::Sharded);
    for (const bool gives_another : {false, true}) {
      on_ranks(3, [&](comm::World& world) {
        CheckpointRun program(world, Mode::Sharded, 77);
        const Values before = all_state_of(program);
        FullStateSource source = source_of(whole);
        int num_calls = 0;
        source.values = [&, give = source.values](const StateEntry& entry) {
          ++num_calls;
          check<IoError>(num_calls < 6 || gives_another, "cannot read {}", entry.name);
          return num_calls < 6 ? give(entry) : Tensor::zeros({1});
        };
        const auto load = [&] {
          load_full_state(world, program.state(), world.rank() == 0 ? &source : nullptr);
        };
        const std::string text = gives_another ? error_of_all<ConfigError>(world, load)
                                               : error_of_all<IoError>(world, load);
        CHECK_MESSAGE(text.find(gives_another ? "the source gives float32 [1] for "
                                              : "cannot read") != std::string::npos,
                      text);
        const Values given = values_of(whole);
        const Values after = all_state_of(program);
        int num_given = 0;
        for (const auto& [name, values] : tensors_only(after)) {
          const bool is_given = values == given.at(name) && values != before.at(name);
          num_given += is_given ? 1 : 0;
          CHECK((is_given || values == before.at(name)));
        }
        CHECK((world.rank() > 0 || num_given == 5));
      });
    }
  }

  TEST_CASE("a source on another rank than 0, or on none, is refused on all ranks") {
    const WholeState whole = whole_of(Mode::Sharded);
    const FullStateSource source = source_of(whole);
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      CHECK(error_of_all<ConfigError>(world, [&] {
              load_full_state(world, program.state(), &source);
            }).starts_with("rank 1: full state: rank 0 has the source"));
      CHECK(error_of_all<ConfigError>(world, [&] {
              load_full_state(world, program.state(), nullptr);
            }).starts_with("rank 0: full state: rank 0 has the source"));
    });
  }

  TEST_CASE("a model that is sharded and replicated at once is refused by name") {
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      checkpoint::TrainingState state = program.state();
      state.replicas = &world.group();
      CHECK_THROWS_WITH_AS(checkpoint::sharded_state(state),
                           Contains("a model is sharded over all ranks or replicated on each, not "
                                    "both at once, got one sharded over 2 ranks with 2 replicas"),
                           ConfigError);
    });
  }
}

}  // namespace
}  // namespace fsdptrain::testing
