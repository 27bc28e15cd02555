#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/folder/retention.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/io/file_system.h"
#include "checkpoint/save/background_work.h"
#include "checkpoint/save/rank_file.h"
#include "comm/clock.h"

namespace fsdptrain::checkpoint {

// One rank's part of one save, by a thread of its own: first its file, then, on rank 0, the commit.
// What the file is written from stays until the job is destroyed. Says nothing to other ranks.
class SaveJob {
 public:
  struct Options {
    FileSystem* files = nullptr;
    // Of checkpoints.
    std::filesystem::path folder;
    // Its files are known behind commit().
    Manifest manifest;
    // How long others' files may take to be seen.
    comm::Nanoseconds visible_within{};
    const comm::Clock* clock = &comm::monotonic_clock();
    // Whether this rank made the staging folder, so that it need not wait to see it.
    bool made_staging = false;
    Retention retention;
    std::function<void()> before_commit;
  };

  // Begins to write what `make_file` returns, which is called at once. Where that throws, or there
  // is no thread to be had, here or later, the outcome is a failed one: ranks tell each other.
  SaveJob(Options options, const std::function<RankFile()>& make_file);
  SaveJob(const SaveJob&) = delete;
  SaveJob& operator=(const SaveJob&) = delete;
  ~SaveJob() = default;

  std::int64_t step() const { return options_.manifest.step; }
  std::filesystem::path checkpoint() const;
  // None while it goes on. Of writing: the facts of the file, as text; of the commit: a JSON list
  // of what went wrong and did no harm.
  std::optional<BackgroundWork::Outcome> outcome() const;
  bool wait_for(comm::Nanoseconds time) const { return !work_ || work_->wait_for(time); }

  // On rank 0, when all have written: these are the files.
  void commit(std::vector<SavedFile> saved);
  // Cancels what goes on; with `discards`, what was written is removed once it has ended. Then it
  // has an outcome again.
  void give_up(bool discards);

 private:
  using Check = BackgroundWork::Check;

  // Gives work_ a value, or start_failure_.
  void start(const std::function<std::unique_ptr<BackgroundWork>()>& make_work);
  std::filesystem::path staging() const;
  void check_sees_folder(const Check& goes_on) const;
  void check_sizes(const Check& goes_on) const;
  std::string write(const Check& check) const;
  std::string publish(const Check& check) const;
  std::string discard() const;

  Options options_;
  RankFile file_;
  // Given up; ended by the work that removes what it wrote.
  std::unique_ptr<BackgroundWork> ending_;
  // Null where it could not start.
  std::unique_ptr<BackgroundWork> work_;
  BackgroundWork::Outcome start_failure_;
};

// As text between ranks.
std::string to_text(const FileFacts& facts);
FileFacts parse_facts(const std::string& text);

}  // namespace fsdptrain::checkpoint
