#include "checkpoint/save/save_job.h"

#include <exception>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "checkpoint/folder/names.h"
#include "checkpoint/folder/staging.h"
#include "checkpoint/folder/visibility.h"
#include "checkpoint/save/manifest_file.h"
#include "runtime/base/error.h"
#include "runtime/base/host_name.h"

namespace fsdptrain::checkpoint {
namespace {

using Check = BackgroundWork::Check;

// None where there is no such file.
std::optional<std::uint64_t> size_of_file(FileSystem& files, const std::filesystem::path& path) {
  try {
    return files.open(path)->size();
  } catch (const DataError&) {
    return std::nullopt;
  }
}

// On the rank that made it.
void check_is_there(FileSystem& files, const std::filesystem::path& staging) {
  check<IoError>(files.kind_of(staging) == EntryKind::Folder,
                 "{}: the folder is gone since this rank made it: did somebody remove it?",
                 staging.string());
}

}  // namespace

void SaveJob::check_sees_folder(const Check& goes_on) const {
  FileSystem& files = *options_.files;
  if (options_.made_staging) {
    check_is_there(files, staging());
    return;
  }
  const std::string& attempt = options_.manifest.attempt;
  const auto sees = [&] {
    const auto path = staging() / kNonceName;
    return size_of_file(files, path) == attempt.size() &&
           read_text(files, path, attempt.size()) == attempt;
  };
  check<IoError>(becomes_true(sees, options_.visible_within, goes_on, *options_.clock),
                 "{}: host {} does not see the folder that rank 0 made: checkpoints need a file "
                 "system that all ranks see",
                 staging().string(), host_name());
}

void SaveJob::check_sizes(const Check& goes_on) const {
  FileSystem& files = *options_.files;
  for (const SavedFile& file : options_.manifest.files) {
    const std::filesystem::path path = staging() / file.name;
    std::optional<std::uint64_t> nbytes;
    const auto fits = [&] {
      check_is_there(files, staging());
      nbytes = size_of_file(files, path);
      return nbytes == file.facts.nbytes;
    };
    check<IoError>(becomes_true(fits, options_.visible_within, goes_on, *options_.clock),
                   "{}: has {} bytes, and {} were written", path.string(), nbytes.value_or(0),
                   file.facts.nbytes);
  }
}

std::string to_text(const FileFacts& facts) {
  return fmt::format("{} {}", facts.nbytes, to_string(facts.digest));
}

FileFacts parse_facts(const std::string& text) {
  const std::size_t space = text.find(' ');
  return {.nbytes = std::stoull(text.substr(0, space)),
          .digest = parse_digest(std::string_view(text).substr(space + 1), "a rank's file")};
}

SaveJob::SaveJob(Options options, const std::function<RankFile()>& make_file)
    : options_(std::move(options)) {
  start([&] {
    file_ = make_file();
    return std::make_unique<BackgroundWork>([this](const Check& check) { return write(check); });
  });
}

void SaveJob::start(const std::function<std::unique_ptr<BackgroundWork>()>& make_work) {
  try {
    work_ = make_work();
  } catch (const std::exception& error) {
    start_failure_ = {.failed = true, .text = error.what()};
  }
}

std::optional<BackgroundWork::Outcome> SaveJob::outcome() const {
  return work_ ? work_->outcome() : start_failure_;
}

std::filesystem::path SaveJob::checkpoint() const {
  return options_.folder / step_folder_name(step());
}

std::filesystem::path SaveJob::staging() const {
  return options_.folder / kStagingFolder / staging_name(step(), options_.manifest.attempt);
}

void SaveJob::commit(std::vector<SavedFile> saved) {
  work_.reset();
  options_.manifest.files = std::move(saved);
  start([this] {
    return std::make_unique<BackgroundWork>([this](const Check& check) { return publish(check); });
  });
}

void SaveJob::give_up(bool discards) {
  if (work_) {
    work_->cancel();
  }
  if (!discards) {
    return;
  }
  ending_ = std::move(work_);
  start([this] {
    return std::make_unique<BackgroundWork>([this](const Check& /*check*/) {
      ending_.reset();
      return discard();
    });
  });
}

std::string SaveJob::write(const Check& check) const {
  check_sees_folder(check);
  return to_text(write_rank_file(*options_.files, file_, check));
}

std::string SaveJob::publish(const Check& check) const {
  FileSystem& files = *options_.files;
  check_sizes(check);
  write_manifest(files, staging(), options_.manifest);
  if (options_.before_commit) {
    options_.before_commit();
  }
  check();
  commit_staging(files, options_.folder, step(), options_.manifest.attempt);
  Retention retention = options_.retention;
  retention.newest = step();
  std::vector<std::string> problems = remove_old(files, options_.folder, retention);
  try {
    write_latest(files, options_.folder, step());
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
  return nlohmann::json(problems).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string SaveJob::discard() const {
  discard_staging(*options_.files, options_.folder, step(), options_.manifest.attempt);
  return {};
}

}  // namespace fsdptrain::checkpoint
