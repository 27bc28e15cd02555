#include "checkpoint/save/saver.h"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>

#include <doctest/doctest.h>

#include "checkpoint/folder/lock.h"
#include "checkpoint/folder/names.h"
#include "checkpoint/folder/scan.h"
#include "checkpoint/load/reader.h"
#include "runtime/base/error.h"
#include "tests/support/checkpoint_run.h"
#include "tests/support/faulty_files.h"
#include "tests/support/memory_files.h"
#include "tests/support/saved_values.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::testing {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::Saver;
using doctest::Contains;

const std::filesystem::path kFolder = "/checkpoints";

// Opens once.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

// Writes wait for a gate.
FileFault gated(Gate& gate) {
  return {.counts = [&gate](FileCall call, const std::filesystem::path& path) {
    if (call == FileCall::Create && path.extension() == ".safetensors") {
      gate.pass();
    }
    return false;
  }};
}

class ManualClock final : public comm::Clock {
 public:
  comm::Nanoseconds now() const override { return comm::Nanoseconds(now_.load()); }
  void advance(comm::Nanoseconds time) { now_ += time.count(); }

 private:
  std::atomic<std::int64_t> now_ = 0;
};

void on_ranks(int num_ranks, const std::function<void(comm::World&)>& body) {
  comm::run_ranks({.num_ranks = num_ranks}, body);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const IoError& error) {
    return error.what();
  }
  return "no error";
}

TEST_SUITE("checkpoint/save/saver") {
  TEST_CASE("what changes right after an asynchronous save is not in it, the tenth time as well") {
    MemoryFiles files;
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Saver saver(files, world, program.state(), {.folder = kFolder, .keep_last = 0});
      std::vector<Values> at_save;
      for (int step = 1; step <= 10; ++step) {
        program.train_step(step);
        Gate gate;
        FaultyFiles slow(files, gated(gate));
        at_save.push_back(without_steps(all_state_of(program)));
        if (step == 2 || step == 10) {
          Saver gated_saver(slow, world, program.state(), {.folder = kFolder, .keep_last = 0});
          gated_saver.save(step);
          program.train_step(step + 100);
          gate.open();
          gated_saver.finish();
        } else {
          saver.save(step);
          program.train_step(step + 100);
        }
      }
      saver.finish();
      if (world.rank() == 0) {
        for (int step = 1; step <= 10; ++step) {
          CAPTURE(step);
          CHECK(num_different_bits(at_save[static_cast<std::size_t>(step) - 1],
                                   saved_values(files, kFolder, step)) == 0);
        }
      }
    });
  }

  TEST_CASE("nothing is said while nothing is saved, and a save ends at a poll of all ranks") {
    MemoryFiles files;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Saver saver(files, world, program.state(), {.folder = kFolder});
      CHECK(saver.report().empty());
      CHECK_FALSE(saver.poll());
      CHECK_FALSE(saver.finish());
      saver.save(7);
      CHECK(saver.in_flight());
      std::optional<Saver::Saved> saved;
      while (!saved) {
        saved = saver.take(world.exchange(saver.report()));
      }
      CHECK(saved->step == 7);
      CHECK(saved->folder == kFolder / "step-00000007");
      CHECK(saver.last_saved()->step == 7);
      CHECK_FALSE(saver.in_flight());
      CHECK(checkpoint::scan(files, kFolder).valid == std::vector<std::int64_t>{7});
    });
  }

  TEST_CASE("a second save waits for the first") {
    MemoryFiles files;
    Gate gate;
    FaultyFiles slow(files, gated(gate));
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Saver saver(slow, world, program.state(), {.folder = kFolder});
      saver.save(1);
      CHECK_FALSE(saver.poll());
      CHECK(files.kind_of(kFolder / "step-00000001") == std::nullopt);
      if (world.rank() == 0) {
        gate.open();
      }
      saver.save(2);
      CHECK(saver.last_saved()->step == 1);
      saver.finish();
      CHECK(saver.last_saved()->step == 2);
    });
  }

  TEST_CASE("the error of one rank is that of all, and the checkpoint before stays") {
    for (const int failing : {0, 2}) {
      for (const int error : {ENOSPC, EIO, EROFS, EDQUOT, EACCES}) {
        CAPTURE(failing);
        CAPTURE(error);
        MemoryFiles files;
        FaultyFiles faulty(files, {.kind = FileFault::Kind::Errno,
                                   .error = error,
                                   .counts = [](FileCall call, const auto& path) {
                                     return (call == FileCall::Write || call == FileCall::Create) &&
                                            path.string().find("/2.") != std::string::npos;
                                   }});
        on_ranks(3, [&](comm::World& world) {
          CheckpointRun program(world, Mode::Sharded);
          checkpoint::FileSystem& own =
              world.rank() == failing ? static_cast<checkpoint::FileSystem&>(faulty) : files;
          Saver saver(own, world, program.state(), {.folder = kFolder, .async = false});
          saver.save(1);
          const std::string text = error_of([&] { saver.save(2); });
          CHECK_MESSAGE(
              text.starts_with(fmt::format("step 2 was not saved: rank {}: /check", failing)),
              text);
          CHECK(text.find(std::generic_category().message(error)) != std::string::npos);
          for (const std::string& other : world.exchange(text)) {
            CHECK(other == text);
          }
          if (world.rank() == 0) {
            CHECK(checkpoint::scan(files, kFolder).valid == std::vector<std::int64_t>{1});
            CHECK(files.list(kFolder / ".staging").empty());
          }
          // The one after it is as any other: the fault was of one call.
          saver.save(3);
          CHECK(saver.last_saved()->step == 3);
        });
      }
    }
  }

  TEST_CASE("a full disk fails a save, and once there is room the next one is there") {
    MemoryFiles files;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Saver saver(files, world, program.state(), {.folder = kFolder});
      saver.save_and_wait(1);
      if (world.rank() == 0) {
        files.set_capacity(std::uint64_t{1} << 30);
        files.set_capacity((std::uint64_t{1} << 30) - files.free_bytes() + 20'000);
      }
      world.exchange("it is full");
      CHECK_THROWS_WITH_AS(saver.save_and_wait(2), Contains("step 2 was not saved: rank "),
                           IoError);
      if (world.rank() == 0) {
        files.set_capacity(std::uint64_t{1} << 30);
      }
      world.exchange("there is room");
      saver.save_and_wait(3);
      if (world.rank() == 0) {
        CHECK(checkpoint::scan(files, kFolder).valid == std::vector<std::int64_t>{3, 1});
      }
    });
  }

  TEST_CASE("a folder that vanishes under a save fails it, and is made anew by the next") {
    MemoryFiles files;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      bool vanishes = true;
      Saver saver(files, world, program.state(),
                  {.folder = kFolder,
                   .visible_within = {},
                   .before_commit =
                       [&] {
                         if (vanishes) {
                           checkpoint::remove_all(files, kFolder);
                         }
                       },
                   .warn = [](const std::string&) {}});
      CHECK_THROWS_WITH_AS(saver.save_and_wait(1), Contains("rank 0: /checkpoints"), IoError);
      vanishes = false;
      saver.save_and_wait(2);
      CHECK(checkpoint::scan(files, kFolder).valid == std::vector<std::int64_t>{2});
    });
  }

  TEST_CASE("a rank that sees another folder than rank 0 is named, with its host") {
    MemoryFiles files;
    MemoryFiles other;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Saver saver(world.rank() == 0 ? files : other, world, program.state(),
                  {.folder = kFolder, .async = false, .visible_within = {}});
      CHECK_THROWS_WITH_AS(saver.save(1), Contains("rank 1: /checkpoints/.staging/1."), IoError);
      CHECK_THROWS_WITH_AS(saver.save(1), Contains("does not see the folder that rank 0 made"),
                           IoError);
    });
  }

  TEST_CASE("the folder that rank 0 made and somebody removed is missed at once") {
    MemoryFiles files;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      // Whoever waits for it never ends: its time stands still.
      const ManualClock clock;
      FaultyFiles faulty(
          files, {.counts = [&](FileCall call, const std::filesystem::path& path) {
            if (world.rank() == 0 && call == FileCall::Close && path.filename() == "attempt") {
              checkpoint::remove_all(files, kFolder / ".staging");
            }
            return false;
          }});
      Saver saver(faulty, world, program.state(),
                  {.folder = kFolder, .async = false, .clock = &clock});
      CHECK_THROWS_WITH_AS(saver.save(1), Contains("the folder is gone since this rank made it"),
                           IoError);
    });
  }

  TEST_CASE("fewer than no checkpoints cannot stay") {
    MemoryFiles files;
    on_ranks(1, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      CHECK_THROWS_WITH_AS(
          Saver(files, world, program.state(), {.folder = kFolder, .keep_last = -1}),
          Contains("keep_last must be at least 0 (all), got -1"), ConfigError);
    });
  }

  TEST_CASE("a commit that must not be is none") {
    MemoryFiles files;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Saver saver(files, world, program.state(),
                  {.folder = kFolder, .async = false, .before_commit = [] {
                     fail<IoError>("the lock is {}", "lost");
                   }});
      CHECK_THROWS_WITH_AS(saver.save(1),
                           Contains("step 1 was not saved: rank 0: the lock is lost"), IoError);
      CHECK(checkpoint::scan(files, kFolder).valid.empty());
    });
  }

  TEST_CASE(
      "ranks that do not write in time are named, and the next save waits for their threads") {
    MemoryFiles files;
    Gate gate;
    FaultyFiles slow(files, gated(gate));
    ManualClock clock;
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      checkpoint::FileSystem& own =
          world.rank() > 0 ? static_cast<checkpoint::FileSystem&>(slow) : files;
      Saver saver(own, world, program.state(),
                  {.folder = kFolder, .deadline = std::chrono::seconds(5), .clock = &clock});
      saver.save(1);
      while (saver.report() == ".") {
        // Rank 0 writes meanwhile, others cannot.
        if (world.rank() > 0) {
          break;
        }
      }
      CHECK_FALSE(saver.poll());
      world.exchange("nothing is late");
      if (world.rank() == 0) {
        clock.advance(std::chrono::seconds(6));
      }
      CHECK_THROWS_WITH_AS(saver.poll(),
                           Contains("ranks 1, 2 have not written their files within 5 s"), IoError);
      CHECK_FALSE(saver.in_flight());
      gate.open();
      saver.save(2);
      saver.finish();
      CHECK(saver.last_saved()->step == 2);
      if (world.rank() == 0) {
        CHECK(checkpoint::scan(files, kFolder).valid == std::vector<std::int64_t>{2});
      }
    });
  }

  TEST_CASE("a saver that ends while it saves leaves nothing valid and all it read from unharmed") {
    MemoryFiles files;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      { Saver(files, world, program.state(), {.folder = kFolder}).save(1); }
      CHECK(checkpoint::scan(files, kFolder).valid.empty());
    });
  }

  TEST_CASE("objects are replicated and alike, or of each rank") {
    MemoryFiles files;
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      Notes own(checkpoint::Stateful::Kind::PerRank);
      own.value = {{"rank", world.rank()}};
      checkpoint::TrainingState state = program.state();
      state.objects["own"] = &own;
      Saver saver(files, world, state, {.folder = kFolder, .async = false});
      program.progress.value = "alike";
      saver.save(1);
      program.progress.value = world.rank() == 2 ? "another" : "alike";
      CHECK_THROWS_WITH_AS(saver.save(2), Contains("object progress is replicated, and rank 2 has"),
                           ConfigError);
      if (world.rank() == 0) {
        CHECK(checkpoint::scan(files, kFolder).valid == std::vector<std::int64_t>{1});
        CHECK(files.list(kFolder / ".staging").empty());
        const auto manifest = CheckpointReader::open(files, kFolder / "step-00000001").manifest();
        CHECK(manifest.objects.at("own").values[2].at("rank") == 2);
      }
    });
  }

  TEST_CASE("the system's files do as those of these tests") {
    const TemporaryFolder temporary;
    const auto files = checkpoint::make_real_file_system();
    const std::filesystem::path folder = temporary / "run/checkpoints";
    files->make_folder(temporary / "run");
    on_ranks(3, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      const auto lock =
          world.rank() == 0 ? checkpoint::RunLock::acquire(*files, temporary / "run") : nullptr;
      Saver saver(*files, world, program.state(),
                  {.folder = folder, .keep_last = 2, .before_commit = [&] { lock->check_held(); }});
      for (int step = 1; step <= 4; ++step) {
        program.train_step(step);
        saver.save(step);
      }
      saver.save_and_wait(4);
      if (world.rank() == 0) {
        CHECK(checkpoint::scan(*files, folder).valid == std::vector<std::int64_t>{4, 3});
        CHECK(files->list(folder / ".staging").empty());
        CHECK(files->list(folder / ".trash").empty());
        CHECK(read_file(folder / "latest") == "step-00000004\n");
      }
      CheckpointRun other(world, Mode::Sharded, 77);
      CHECK(checkpoint::load_newest(*files, world, other.state(), folder)->step == 4);
      CHECK(num_different_bits(all_state_of(program), all_state_of(other)) == 0);
    });
  }

  TEST_CASE("staging is planned to the byte, and there is none where files are written in place") {
    MemoryFiles files;
    on_ranks(2, [&](comm::World& world) {
      CheckpointRun program(world, Mode::Sharded);
      const Saver in_place(files, world, program.state(), {.folder = kFolder, .async = false});
      CHECK(in_place.staging_nbytes() == 0);
      const Saver staged(files, world, program.state(), {.folder = kFolder});
      const std::int64_t nbytes = checkpoint::staging_nbytes_of(program.state());
      CHECK(staged.staging_nbytes() == nbytes);
    });
  }
}

}  // namespace
}  // namespace fsdptrain::testing
