#include "checkpoint/load/loader.h"

#include <cerrno>
#include <functional>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/optim/sgd.h"
#include "tests/support/checkpoint_run.h"
#include "tests/support/faulty_files.h"
#include "tests/support/memory_files.h"

namespace fsdptrain::testing {
namespace {

using checkpoint::load_checkpoint;
using checkpoint::load_newest;
using checkpoint::LoadOptions;
using checkpoint::Saver;
using checkpoint::TrainingState;
using doctest::Contains;

const std::filesystem::path kFolder = "/checkpoints";

void on_ranks(int num_ranks, const std::function<void(comm::World&)>& body) {
  comm::run_ranks({.num_ranks = num_ranks}, body);
}

// Steps 1 to `last`, of which progress is ten times the step.
void save_steps(MemoryFiles& files, Mode mode, int num_ranks, int last) {
  on_ranks(num_ranks, [&](comm::World& world) {
    CheckpointRun program(world, mode);
    Saver saver(files, world, program.state(), {.folder = kFolder, .async = false, .keep_last = 0});
    for (int step = 1; step <= last; ++step) {
      program.train_step(step);
      program.progress.value = 10 * step;
      saver.save(step);
    }
  });
}

// Another file of the same name, with one byte changed.
void flip_byte(MemoryFiles& files, const std::filesystem::path& path, std::uint64_t offset) {
  std::vector<std::byte> bytes;
  {
    const auto file = files.open(path);
    bytes.resize(file->size());
    file->read_at(0, bytes);
  }
  bytes[offset] ^= std::byte{1};
  files.remove_file(path);
  files.create(path)->write_at(0, bytes);
}

std::uint64_t size_of_file(MemoryFiles& files, const std::filesystem::path& path) {
  return files.open(path)->size();
}

TEST_SUITE("checkpoint/load/loader") {
  TEST_CASE("no checkpoint is none on all ranks, whatever else is there") {
    MemoryFiles files;
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      CHECK_FALSE(load_newest(files, world, program.state(), kFolder));
      if (world.rank() == 0) {
        files.make_folder(kFolder);
        files.make_folder(kFolder / "step-1");
        files.make_folder(kFolder / ".staging");
      }
      world.exchange("they are made");
      CHECK_FALSE(load_newest(files, world, program.state(), kFolder));
    });
  }

  TEST_CASE("a folder that cannot be listed is an error on all ranks, and not none") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 1, 1);
    FaultyFiles faulty(
        files, {.kind = FileFault::Kind::Errno,
                .error = EIO,
                .counts = [](FileCall call, const auto&) { return call == FileCall::List; }});
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      checkpoint::FileSystem& own =
          world.rank() == 0 ? static_cast<checkpoint::FileSystem&>(faulty) : files;
      CHECK_THROWS_WITH_AS(load_newest(own, world, program.state(), kFolder),
                           Contains("rank 0: /checkpoints"), IoError);
    });
  }

  TEST_CASE("what is damaged is passed over for the one before it, saying why, on all ranks") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 3, 4);
    const auto file_of = [](const char* step) { return kFolder / step / "rank-00001.safetensors"; };
    // In a block that only some of the ranks read; a file that is too short; a manifest.
    flip_byte(files, file_of("step-00000004"), size_of_file(files, file_of("step-00000004")) - 1);
    files.remove_file(file_of("step-00000003"));
    flip_byte(files, kFolder / "step-00000002/manifest.json", 30);
    on_ranks(4, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded, 77);
      const auto loaded = load_newest(files, world, program.state(), kFolder);
      REQUIRE(loaded);
      CHECK(loaded->step == 1);
      CHECK(loaded->num_ranks == 3);
      CHECK(program.progress.value == 10);
      REQUIRE(loaded->skipped.size() == 3);
      CHECK_MESSAGE(loaded->skipped[0].starts_with("step-00000004: rank "), loaded->skipped[0]);
      CHECK(loaded->skipped[0].find("rank-00001.safetensors") != std::string::npos);
      CHECK_MESSAGE(loaded->skipped[1].starts_with("step-00000003: "), loaded->skipped[1]);
      CHECK_MESSAGE(loaded->skipped[2].starts_with("step-00000002: "), loaded->skipped[2]);
    });
  }

  TEST_CASE("checkpoints of which none can be had are an error that lists why, and not none") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 1, 2);
    files.remove_file(kFolder / "step-00000001/manifest.json");
    flip_byte(files, kFolder / "step-00000002/rank-00000.safetensors", 60'000);
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      CHECK_THROWS_WITH_AS(load_newest(files, world, program.state(), kFolder),
                           Contains("none of its checkpoints can be had: step-00000002: rank "),
                           DataError);
      CHECK_THROWS_WITH_AS(
          load_checkpoint(files, world, program.state(), kFolder / "step-00000001"),
          Contains("is no checkpoint"), DataError);
      CHECK_THROWS_AS(load_checkpoint(files, world, program.state(), kFolder / "step-00000002"),
                      DataError);
    });
  }

  TEST_CASE("a checkpoint under the name of another step is passed over") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 1, 2);
    files.rename(kFolder / "step-00000001", kFolder / "step-00000009");
    on_ranks(1, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      const auto loaded = load_newest(files, world, program.state(), kFolder);
      REQUIRE(loaded);
      CHECK(loaded->step == 2);
      CHECK(loaded->skipped.front().find("its manifest is of step 1") != std::string::npos);
    });
  }

  TEST_CASE("all that does not fit is listed, and nothing is changed") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 2, 1);
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Tied);
      const Values before = all_state_of(program);
      const TrainingState state = program.state();
      CHECK_THROWS_WITH_AS(load_newest(files, world, state, kFolder),
                           Contains("it does not fit what is trained: "), ConfigError);
      CHECK_THROWS_WITH_AS(load_newest(files, world, state, kFolder), Contains(" is missing; "),
                           ConfigError);
      CHECK_THROWS_WITH_AS(load_newest(files, world, state, kFolder), Contains("; and "),
                           ConfigError);
      CHECK(num_different_bits(before, all_state_of(program)) == 0);
    });
  }

  TEST_CASE(
      "what was trained and is frozen, and the other way round, does not fit unless allowed") {
    MemoryFiles files;
    save_steps(files, Mode::Frozen, 2, 1);
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      CHECK_THROWS_WITH_AS(load_newest(files, world, program.state(), kFolder),
                           Contains("norm.weight is trained here and was frozen"), ConfigError);
      const auto loaded =
          load_newest(files, world, program.state(), kFolder, {.allow_differences = true});
      REQUIRE(loaded);
      const auto& lines = loaded->differences;
      const auto has = [&](const std::string& line) {
        return std::ranges::find(lines, line) != lines.end();
      };
      CHECK(has("exp_avg of model.norm.weight is missing"));
      CHECK(has("average of model.norm.weight is missing"));
      CHECK_FALSE(has("exp_avg of model.embed_tokens.weight is missing"));
    });
  }

  TEST_CASE("states of another optimizer do not fit, and parameters alone do") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 2, 2);
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded, 77);
      optim::Sgd sgd(program.sharded->chunks(), {.momentum = 0.9});
      TrainingState state = program.state();
      state.optimizer = &sgd;
      state.average = nullptr;
      CHECK_THROWS_WITH_AS(load_newest(files, world, state, kFolder),
                           Contains("momentum of model.embed_tokens.weight is missing; exp_avg of "
                                    "model.embed_tokens.weight has no place here"),
                           ConfigError);
      const auto loaded = load_newest(files, world, state, kFolder, {.parameters_only = true});
      REQUIRE(loaded);
      CHECK(loaded->step == 2);
      CHECK(loaded->differences.empty());
      CHECK(program.progress.value.is_null());
      for (const nn::FlatChunk& chunk : program.sharded->chunks()) {
        for (const nn::Segment& segment : chunk.segments) {
          CHECK(segment.step == 0);
        }
      }
    });
  }

  TEST_CASE("a count of updates comes back only with all states of the optimizer") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 2, 2);
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded, 77);
      optim::Sgd with_momentum(program.sharded->chunks(), {.momentum = 0.9});
      optim::Sgd without(program.sharded->chunks(), {});
      TrainingState state = program.state();
      const auto expect_steps = [&](optim::Optimizer& optimizer, std::int64_t steps) {
        state.optimizer = &optimizer;
        REQUIRE(load_newest(files, world, state, kFolder, {.allow_differences = true}));
        for (const nn::FlatChunk& chunk : program.sharded->chunks()) {
          for (const nn::Segment& segment : chunk.segments) {
            CHECK(segment.step == steps);
          }
        }
      };
      expect_steps(with_momentum, 0);
      // One that has no states lacks none.
      expect_steps(without, 2);
      state.average = nullptr;
      expect_steps(*program.optimizer, 2);
    });
  }

  TEST_CASE("a count of updates comes back without an average") {
    MemoryFiles files;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      program.train_step(1);
      TrainingState state = program.state();
      state.average = nullptr;
      Saver(files, world, state, {.folder = kFolder, .async = false}).save(1);
      CheckpointRun loaded(world, Mode::Sharded, 77);
      REQUIRE(load_newest(files, world, loaded.state(), kFolder, {.allow_differences = true}));
      for (const nn::FlatChunk& chunk : loaded.sharded->chunks()) {
        for (const nn::Segment& segment : chunk.segments) {
          CHECK(segment.step == 1);
        }
      }
    });
  }

  TEST_CASE("another dtype does not fit unless it is to be converted, and then it is said") {
    MemoryFiles files;
    save_steps(files, Mode::Float64, 3, 1);
    Values saved;
    on_ranks(1, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Float64, 77);
      load_newest(files, world, program.state(), kFolder);
      saved = all_state_of(program);
    });
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded, 77);
      CHECK_THROWS_WITH_AS(load_newest(files, world, program.state(), kFolder),
                           Contains("model.embed_tokens.weight is float64, not float32"),
                           ConfigError);
      const auto loaded =
          load_newest(files, world, program.state(), kFolder, {.convert_dtypes = true});
      REQUIRE(loaded);
      CHECK(loaded->differences.front() == "model.embed_tokens.weight is float64, not float32");
      const Values converted = without_steps(all_state_of(program));
      for (const auto& [name, values] : converted) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          CHECK(values[i] == static_cast<double>(static_cast<float>(saved.at(name)[i])));
        }
      }
    });
  }

  TEST_CASE("an object per rank comes back on as many ranks, and is refused on others") {
    MemoryFiles files;
    const auto with_own = [](CheckpointRun& program, Notes& own) {
      TrainingState state = program.state();
      state.objects["own"] = &own;
      return state;
    };
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Notes own(checkpoint::Stateful::Kind::PerRank);
      own.value = 100 + world.rank();
      Saver(files, world, with_own(program, own), {.folder = kFolder, .async = false}).save(1);
    });
    for (const int num_ranks : {3, 2}) {
      on_ranks(num_ranks, [&](comm::World& world) {
        CheckpointRun program(world, Mode::Sharded);
        Notes own(checkpoint::Stateful::Kind::PerRank);
        const TrainingState state = with_own(program, own);
        if (num_ranks == 3) {
          CHECK(load_newest(files, world, state, kFolder));
          CHECK(own.value == 100 + world.rank());
        } else {
          CHECK_THROWS_WITH_AS(load_newest(files, world, state, kFolder),
                               Contains("object own: it is of each rank, was saved by 3 ranks"),
                               ConfigError);
        }
      });
    }
  }

  TEST_CASE("objects that are missing, without a place, or of another kind do not fit") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 1, 1);
    on_ranks(1, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Notes notes(checkpoint::Stateful::Kind::PerRank);
      TrainingState state = program.state();
      state.objects = {{"notes", &notes}};
      CHECK_THROWS_WITH_AS(load_newest(files, world, state, kFolder),
                           Contains("object notes is missing; object progress has no place here"),
                           ConfigError);
      state.objects = {{"progress", &notes}};
      CHECK_THROWS_WITH_AS(load_newest(files, world, state, kFolder),
                           Contains("object progress is replicated, not per rank"), ConfigError);
    });
  }

  TEST_CASE("parameters that are gathered when a state is loaded are gathered anew") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 2, 1);
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun fresh(world, Mode::Sharded, 77);
      load_newest(files, world, fresh.state(), kFolder);
      CheckpointRun program(world, Mode::Sharded, 77);
      for (const auto& unit : program.sharded->units()) {
        unit->set_reshard_after_backward(false);
      }
      program.compute_gradients(5);
      load_newest(files, world, program.state(), kFolder);
      fresh.train_step(6);
      program.train_step(6);
      CHECK(num_different_bits(all_state_of(fresh), all_state_of(program)) == 0);
    });
  }

  TEST_CASE("a rank that does not see what rank 0 sees is an error, and no older step is loaded") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 1, 2);
    MemoryFiles other;
    save_steps(other, Mode::Sharded, 1, 1);
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      CHECK_THROWS_WITH_AS(load_newest(world.rank() == 0 ? files : other, world, program.state(),
                                       kFolder, {.visible_within = {}}),
                           Contains("does not see what rank 0 does"), IoError);
    });
  }

  TEST_CASE("a rank opens the files that have its part, each once, and no others") {
    MemoryFiles files;
    save_steps(files, Mode::Sharded, 8, 1);
    std::vector<std::int64_t> opened(8);
    on_ranks(8, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      FaultyFiles counting(files, {.counts = [](FileCall call, const auto& path) {
                             return call == FileCall::Open && path.extension() == ".safetensors";
                           }});
      load_checkpoint(counting, world, program.state(), kFolder / "step-00000001");
      opened[static_cast<std::size_t>(world.rank())] = counting.num_calls();
    });
    // Rank 0 looks at all of them first.
    CHECK(opened == std::vector<std::int64_t>{9, 1, 1, 1, 1, 1, 1, 1});
  }
}

}  // namespace
}  // namespace fsdptrain::testing
