#include <functional>
#include <limits>
#include <map>

#include <doctest/doctest.h>

#include "checkpoint/folder/scan.h"
#include "checkpoint/save/saver.h"
#include "runtime/base/error.h"
#include "tests/support/checkpoint_run.h"
#include "tests/support/memory_files.h"

// Objects of a program, which ranks have to have alike.
namespace fsdptrain::testing {
namespace {

using checkpoint::Saver;
using checkpoint::Stateful;
using doctest::Contains;

const std::filesystem::path kFolder = "/checkpoints";

// Rank `other` of three has `theirs` where the others have `ours`; each object is the rank's own.
struct Objects {
  std::map<std::string, Stateful::Kind> ours;
  std::map<std::string, Stateful::Kind> theirs;
  int other = 2;
};

void expect_refused(const Objects& objects, const char* text) {
  CAPTURE(text);
  MemoryFiles files;
  comm::run_ranks({.num_ranks = 3}, [&](comm::World& world) {
    CheckpointRun program(world, Mode::Sharded);
    checkpoint::TrainingState state = program.state();
    std::map<std::string, std::unique_ptr<Notes>> notes;
    for (const auto& [name, kind] : world.rank() == objects.other ? objects.theirs : objects.ours) {
      notes[name] = std::make_unique<Notes>(kind);
      notes[name]->value = 1;
      state.objects[name] = notes[name].get();
    }
    Saver saver(files, world, state, {.folder = kFolder, .async = false});
    CHECK_THROWS_WITH_AS(saver.save(1), Contains(text), ConfigError);
    if (world.rank() == 0) {
      CHECK(checkpoint::scan(files, kFolder).valid.empty());
      CHECK(files.list(kFolder / ".staging").empty());
    }
  });
}

// Of rank 1 of two, whose object is `value`; a state that can be saved is saved behind it.
void expect_value_refused(Stateful::Kind kind, const nlohmann::json& value, const char* text) {
  CAPTURE(text);
  MemoryFiles files;
  comm::run_ranks({.num_ranks = 2}, [&](comm::World& world) {
    CheckpointRun program(world, Mode::Sharded);
    Notes notes(kind);
    checkpoint::TrainingState state = program.state();
    state.objects["notes"] = &notes;
    Saver saver(files, world, state, {.folder = kFolder, .async = false});
    notes.value = world.rank() == 1 ? value : nlohmann::json(1);
    CHECK_THROWS_WITH_AS(saver.save(1), Contains(text), ConfigError);
    notes.value = "right";
    saver.save(2);
    CHECK(saver.last_saved()->step == 2);
  });
}

TEST_SUITE("checkpoint/save/objects") {
  TEST_CASE("an object that one rank has not, or alone has, is refused in both directions") {
    for (const auto kind : {Stateful::Kind::Replicated, Stateful::Kind::PerRank}) {
      expect_refused({.ours = {{"data", kind}}, .theirs = {}},
                     "rank 0 has an object data, and rank 2 has none of that name");
      expect_refused({.ours = {}, .theirs = {{"data", kind}}},
                     "rank 2 has an object data, and rank 0 has none of that name");
      expect_refused({.ours = {}, .theirs = {{"data", kind}}, .other = 0},
                     "rank 0 has an object data, and rank 1 has none of that name");
    }
  }

  TEST_CASE("an object that is replicated on one rank and per rank on another is refused") {
    const std::map<std::string, Stateful::Kind> replicated = {{"data", Stateful::Kind::Replicated}};
    const std::map<std::string, Stateful::Kind> per_rank = {{"data", Stateful::Kind::PerRank}};
    expect_refused({.ours = replicated, .theirs = per_rank},
                   "object data is replicated on rank 0, and per rank on rank 2");
    expect_refused({.ours = per_rank, .theirs = replicated},
                   "object data is per rank on rank 0, and replicated on rank 2");
  }

  TEST_CASE("what JSON cannot hold is refused with the object, its place and the rank") {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const auto kind : {Stateful::Kind::Replicated, Stateful::Kind::PerRank}) {
      expect_value_refused(kind, {{"loss", {1.5, std::numeric_limits<double>::quiet_NaN()}}},
                           "rank 1: object notes at /loss/1 is nan");
      expect_value_refused(kind, -infinity, "rank 1: object notes is -inf");
      expect_value_refused(kind, {{"text", "a\xff"}},
                           "rank 1: object notes has text that is not UTF-8");
      expect_value_refused(kind, {{"a\xff", 1}}, "rank 1: object notes has text that is not UTF-8");
      expect_value_refused(kind, nlohmann::json::binary({1, 2}),
                           "rank 1: object notes is no value of JSON");
    }
  }

  TEST_CASE("a name that is not UTF-8 is refused on all ranks") {
    expect_refused({.ours = {{"a\xff", Stateful::Kind::PerRank}},
                    .theirs = {{"a\xff", Stateful::Kind::PerRank}}},
                   "rank 0: object a\\xff has text that is not UTF-8");
  }
}

}  // namespace
}  // namespace fsdptrain::testing
