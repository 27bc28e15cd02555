#include "checkpoint/save/saver.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/folder/names.h"
#include "checkpoint/folder/staging.h"
#include "checkpoint/plan/layout_index.h"
#include "checkpoint/save/manifest_file.h"
#include "checkpoint/save/opening.h"
#include "checkpoint/save/rank_file.h"
#include "checkpoint/save/reports.h"
#include "checkpoint/save/save_job.h"
#include "checkpoint/save/snapshot.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

// How long a rank waits for its own thread before it looks what others say.
constexpr comm::Nanoseconds kWait = std::chrono::milliseconds(500);
// For a save that failed to be gone before that is said.
constexpr comm::Nanoseconds kCleanUp = std::chrono::seconds(2);

std::vector<Tensor> windows_of_state(const StateTensors& tensors) {
  const SavedLayout layout = layout_of(tensors);
  return windows_of(tensors, LayoutIndex(layout).pieces_of(tensors.file()));
}

bool is_on_host(const StateTensors& tensors) {
  return std::ranges::all_of(tensors.groups, [](const StateGroup& group) {
    return group.planes.front().values.device() == Device::cpu();
  });
}

std::vector<std::span<const std::byte>> bytes_of(std::span<const Tensor> windows) {
  std::vector<std::span<const std::byte>> bytes;
  for (const Tensor& window : windows) {
    bytes.push_back(window.bytes());
  }
  return bytes;
}

}  // namespace

struct Saver::Staging {
  StagingMemory memory;
};

// Of this rank as it is, and of all as they were told.
struct Saver::Openings {
  StateTensors tensors;
  SavedLayout layout;
  Opening mine;
  std::vector<Opening> all;
};

Saver::Saver(FileSystem& files, comm::World& world, TrainingState state, Options options)
    : files_(files), world_(world), state_(std::move(state)), options_(std::move(options)) {
  if (!options_.warn) {
    options_.warn = [](const std::string& text) { log_warning("{}", text); };
  }
  check<ConfigError>(options_.keep_last >= 0, "saver: keep_last must be at least 0 (all), got {}",
                     options_.keep_last);
  const StateTensors tensors = tensors_of(state_);
  check<ConfigError>(tensors.num_files() == world.size(),
                     "saver: the model must be that of all {} ranks of the world, got {}",
                     world.size(), tensors.num_files());
  if (options_.async || !is_on_host(tensors)) {
    const std::vector<Tensor> windows = windows_of_state(tensors);
    staging_ = std::make_unique<Staging>(Staging{StagingMemory(windows)});
  }
}

// Threads end before what they read from.
Saver::~Saver() {
  job_.reset();
  abandoned_.reset();
}

std::int64_t Saver::staging_nbytes() const {
  return staging_ ? staging_->memory.nbytes() : 0;
}

void Saver::save(std::int64_t step) {
  begin(step);
  if (!options_.async) {
    wait_until_done();
  }
}

void Saver::save_and_wait(std::int64_t step) {
  begin(step);
  wait_until_done();
}

Saver::Openings Saver::open(std::int64_t step) {
  Openings openings;
  openings.mine.step = step;
  try {
    check<IoError>(!abandoned_ || abandoned_->wait_for(options_.visible_within), "{}",
                   "the thread of an earlier save that was given up has not come back");
    abandoned_.reset();
    openings.tensors = tensors_of(state_);
    openings.layout = layout_of(openings.tensors);
    openings.mine = opening_of(state_, openings.tensors, openings.layout, step);
    if (world_.rank() == 0) {
      openings.mine.attempt = make_attempt();
      make_staging(files_, options_.folder, step, openings.mine.attempt);
    }
  } catch (const std::exception& error) {
    openings.mine.error = error.what();
  }
  for (const std::string& text : world_.exchange(to_text(openings.mine))) {
    openings.all.push_back(parse_opening(text));
  }
  return openings;
}

Manifest Saver::agree_on(const Openings& openings) {
  try {
    Manifest manifest = agree(openings.all, openings.mine, state_, openings.layout);
    manifest.writer = options_.writer;
    return manifest;
  } catch (const Error&) {
    // Every rank throws, and rank 0 has made a folder.
    if (!openings.mine.attempt.empty()) {
      drop_staging(openings.mine.step, openings.mine.attempt);
    }
    throw;
  }
}

RankFile Saver::file_of(const StateTensors& tensors, const Manifest& manifest) {
  const LayoutIndex index(manifest.layout);
  const std::vector<HeldPiece> pieces = index.pieces_of(tensors.file());
  const std::vector<Tensor> windows = windows_of(tensors, pieces);
  return {.path = options_.folder / kStagingFolder / staging_name(manifest.step, manifest.attempt) /
                  rank_file_name(tensors.file()),
          .metadata = metadata_of(manifest),
          .specs = index.specs_of(pieces),
          .values = staging_ ? staging_->memory.copy(windows) : bytes_of(windows)};
}

void Saver::begin(std::int64_t step) {
  finish();
  begun_ = options_.clock->now();
  const Openings openings = open(step);
  const Manifest manifest = agree_on(openings);
  files_of_ranks_.clear();
  for (const Opening& opening : openings.all) {
    files_of_ranks_.push_back(opening.file);
  }
  phase_ = Phase::Writing;
  job_ = std::make_unique<SaveJob>(
      SaveJob::Options{
          .files = &files_,
          .folder = options_.folder,
          .manifest = manifest,
          .visible_within = options_.visible_within,
          .clock = options_.clock,
          .made_staging = world_.rank() == 0,
          .retention = {.keep_last = options_.keep_last, .keep_steps = options_.keep_steps},
          .before_commit = options_.before_commit},
      [&] { return file_of(openings.tensors, manifest); });
}

void Saver::drop_staging(std::int64_t step, const std::string& attempt) {
  try {
    discard_staging(files_, options_.folder, step, attempt);
  } catch (const Error& error) {
    options_.warn(error.what());
  }
}

std::optional<Saver::Saved> Saver::poll() {
  return job_ ? take(world_.exchange(report())) : std::nullopt;
}

std::optional<Saver::Saved> Saver::finish() {
  return job_ ? wait_until_done() : std::nullopt;
}

std::optional<Saver::Saved> Saver::wait_until_done() {
  while (true) {
    // Those that only wait for rank 0 do so in the exchange.
    if (phase_ == Phase::Writing || world_.rank() == 0) {
      job_->wait_for(kWait);
    }
    if (const std::optional<Saved> saved = poll()) {
      return saved;
    }
  }
}

std::string Saver::report() {
  if (!job_) {
    return {};
  }
  const bool has_work = phase_ == Phase::Writing || world_.rank() == 0;
  const bool is_late = world_.rank() == 0 && options_.clock->now() - begun_ > options_.deadline;
  return report_of(has_work ? job_->outcome() : std::nullopt, is_late);
}

std::optional<Saver::Saved> Saver::take(std::span<const std::string> reports) {
  if (!job_) {
    return std::nullopt;
  }
  const Reports said = parse_reports(reports);
  if (const std::optional<std::size_t> failed = said.failed_rank()) {
    give_up(fmt::format("rank {}: {}", *failed, said.ranks[*failed].text));
  }
  const std::vector<std::size_t> pending = said.pending_ranks();
  const bool is_done =
      phase_ == Phase::Writing ? pending.empty() : said.ranks[0].state == Report::State::Done;
  if (!is_done && said.is_late) {
    give_up(phase_ == Phase::Writing
                ? fmt::format("ranks {} have not written their files within {}",
                              fmt::join(pending, ", "), comm::to_string(options_.deadline))
                : fmt::format("rank 0 has not named the checkpoint within {}",
                              comm::to_string(options_.deadline)));
  }
  if (!is_done) {
    return std::nullopt;
  }
  if (phase_ == Phase::Committing) {
    return end_commit(said.ranks[0].text);
  }
  begin_commit(said.ranks);
  return std::nullopt;
}

void Saver::begin_commit(std::span<const Report> reports) {
  phase_ = Phase::Committing;
  if (world_.rank() != 0) {
    return;
  }
  std::vector<SavedFile> saved(reports.size());
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const std::int64_t file = files_of_ranks_[rank];
    saved[static_cast<std::size_t>(file)] = {.name = rank_file_name(file),
                                             .facts = parse_facts(std::string(reports[rank].text))};
  }
  job_->commit(std::move(saved));
}

Saver::Saved Saver::end_commit(std::string_view problems) {
  const Saved saved{.step = job_->step(), .folder = job_->checkpoint()};
  job_.reset();
  last_saved_ = saved;
  if (world_.rank() == 0) {
    for (const auto& problem : nlohmann::json::parse(problems)) {
      options_.warn(fmt::format("the checkpoint of step {} is there, but: {}", saved.step,
                                problem.get<std::string>()));
    }
  }
  return saved;
}

void Saver::give_up(const std::string& reason) {
  const std::int64_t step = job_->step();
  abandoned_ = std::move(job_);
  abandoned_->give_up(world_.rank() == 0);
  // Mostly it takes no time; a device that hangs is not waited for, unless the thread reads what
  // training would change.
  bool has_ended = abandoned_->wait_for(kCleanUp);
  while (!has_ended && !staging_) {
    has_ended = abandoned_->wait_for(kCleanUp);
  }
  if (has_ended) {
    const std::optional<BackgroundWork::Outcome> outcome = abandoned_->outcome();
    if (world_.rank() == 0 && outcome && outcome->failed) {
      options_.warn(outcome->text);
    }
    abandoned_.reset();
  }
  fail<IoError>("step {} was not saved: {}", step, printable(reason));
}

std::int64_t staging_nbytes_of(const TrainingState& state) {
  return StagingMemory::nbytes_for(windows_of_state(tensors_of(state)));
}

}  // namespace fsdptrain::checkpoint
