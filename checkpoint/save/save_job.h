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
    RankFile file;
    // How long others' files may take to be seen.
    comm::Nanoseconds visible_within{};
    Retention retention;
    std::function<void()> before_commit;
  };

  // Begins to write.
  explicit SaveJob(Options options);

  std::int64_t step() const { return options_.manifest.step; }
  std::filesystem::path checkpoint() const;
  // None while it goes on. Of writing: the facts of the file, as text; of the commit: a JSON list
  // of what went wrong and did no harm.
  std::optional<BackgroundWork::Outcome> outcome() const { return work_->outcome(); }
  bool wait_for(comm::Nanoseconds time) const { return work_->wait_for(time); }

  // On rank 0, when all have written: these are the files.
  void commit(std::vector<SavedFile> saved);
  // Cancels what goes on; with `discards`, what was written is removed once it has ended. Then it
  // has an outcome again.
  void give_up(bool discards);

 private:
  using Check = BackgroundWork::Check;

  std::filesystem::path staging() const;
  std::string write(const Check& check) const;
  std::string publish(const Check& check) const;
  std::string discard() const;

  Options options_;
  std::unique_ptr<BackgroundWork> work_;
};

// As text between ranks.
std::string to_text(const FileFacts& facts);
FileFacts parse_facts(const std::string& text);

}  // namespace fsdptrain::checkpoint
