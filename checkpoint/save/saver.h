#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/io/file_system.h"
#include "checkpoint/state/training_state.h"
#include "comm/clock.h"
#include "comm/world.h"

namespace fsdptrain::checkpoint {

class SaveJob;
struct Manifest;
struct RankFile;
struct Report;

// Saves the state of a training program, of all ranks of a world together, in a folder that all of
// them see:
//
//   Saver saver(*files, world, state, {.folder = run / "checkpoints"});
//   for (...) {
//     train_one_step();
//     saver.poll();
//     if (step % 100 == 0) saver.save(step);
//   }
//   saver.finish();
//
// Every rank's thread writes a file of its own; what ranks say to each other goes over the control
// group, by the thread that trains, at the calls below. All methods but those that say so are
// collective: all ranks call them at the same points. A checkpoint that fails changes no
// other and leaves nothing, unless it is given up, at its deadline, while it gets its name: then it
// may be there, whole. Every rank gets the same IoError, with the rank where it began. An error of
// the world, such as a rank that died, comes as it is.
//
// The process has the lock of the run. Belongs to the thread of its rank.
class Saver {
 public:
  struct Options {
    // Made where it is missing.
    std::filesystem::path folder;
    // save() copies this rank's part into memory that is allocated and touched when the saver is
    // made, and returns; else it returns when the checkpoint is there. On a GPU there is always a
    // copy, which the host waits for.
    bool async = true;
    // How many of the newest checkpoints stay; 0: all. And which others.
    std::int64_t keep_last = 2;
    std::set<std::int64_t> keep_steps = {};
    // From the call of save() on, for all of it.
    comm::Nanoseconds deadline = std::chrono::minutes(30);
    // How long the system may take to show this rank what another has made. Less than the timeout
    // of the world, which others may wait in meanwhile.
    comm::Nanoseconds visible_within = std::chrono::seconds(60);
    const comm::Clock* clock = &comm::monotonic_clock();
    // By which program, for the manifest.
    std::string writer = "fsdptrain";
    // On rank 0, by a thread of the saver, before the checkpoint gets its name; throws if it must
    // not: RunLock::check_held().
    std::function<void()> before_commit = {};
    // On rank 0, at a step boundary: what went wrong and does no harm.
    std::function<void(const std::string&)> warn = {};
  };
  // What a save has come to.
  struct Saved {
    std::int64_t step = 0;
    std::filesystem::path folder;
  };

  // Not collective. ConfigError for a negative keep_last. `files` and what `state` points to
  // outlive it.
  Saver(FileSystem& files, comm::World& world, TrainingState state, Options options);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  // Ends what is under way, which leaves nothing that is valid, or, where it is getting its name
  // already, may come to be a checkpoint. Not collective.
  ~Saver();

  // Behind so many updates; objects are asked for their state. The parameters may change as soon as
  // it returns. One save at a time: waits for the one before, and throws, beginning nothing, where
  // that has failed.
  void save(std::int64_t step);
  // The same, and returns when it is there.
  void save_and_wait(std::int64_t step);

  // At every step boundary: throws if the save under way has failed. Nothing is said where none is
  // under way. What it has come to, once.
  std::optional<Saved> poll();
  // Waits for the save under way.
  std::optional<Saved> finish();
  // The last one that came to be a checkpoint. Not collective; the same on all ranks.
  const std::optional<Saved>& last_saved() const { return last_saved_; }

  // poll() for a program that has a message of its own at every step boundary: what this rank says,
  // short, empty where nothing is under way; then, with what all ranks said there, in their order,
  // take(). Not collective, none of them waits.
  std::string report();
  std::optional<Saved> take(std::span<const std::string> reports);

  // Not collective; the same on all ranks.
  bool in_flight() const { return job_ != nullptr; }
  // Bytes of host memory that save() copies to; 0 where it does not.
  std::int64_t staging_nbytes() const;

 private:
  struct Staging;
  struct Openings;
  enum class Phase { Writing, Committing };

  void begin(std::int64_t step);
  Openings open(std::int64_t step);
  Manifest agree_on(const Openings& openings);
  // Of this rank, with a copy of its values where there is memory for one.
  RankFile file_of(const StateTensors& tensors, const Manifest& manifest);
  void drop_staging(std::int64_t step, const std::string& attempt);
  // Throws what poll() throws.
  std::optional<Saved> wait_until_done();
  void begin_commit(std::span<const Report> reports);
  Saved end_commit(std::string_view problems);
  [[noreturn]] void give_up(const std::string& reason);

  FileSystem& files_;
  comm::World& world_;
  TrainingState state_;
  Options options_;
  // Null where files are written from the state itself.
  std::unique_ptr<Staging> staging_;
  // Of the save under way.
  std::unique_ptr<SaveJob> job_;
  Phase phase_ = Phase::Writing;
  comm::Nanoseconds begun_{};
  // Which file each rank writes.
  std::vector<std::int64_t> files_of_ranks_;
  std::optional<Saved> last_saved_;
  // Given up, and perhaps not ended yet: it reads what it writes.
  std::unique_ptr<SaveJob> abandoned_;
};

// Bytes of the staging memory of one rank for a state.
std::int64_t staging_nbytes_of(const TrainingState& state);

}  // namespace fsdptrain::checkpoint
