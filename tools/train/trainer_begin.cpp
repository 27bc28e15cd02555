#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/folder/names.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "tools/train/from_config.h"
#include "tools/train/samples.h"
#include "tools/train/trainer.h"
#include "tools/train/weights.h"

namespace fsdptrain::tools {
namespace {

// For the folder of a run or of its checkpoints: which of them would do. It is not taken by itself,
// since the same configuration would then begin with something else later.
std::string hint_for(checkpoint::FileSystem& files, const std::filesystem::path& from) {
  for (const std::filesystem::path& folder : {from, from / kCheckpointsFolder}) {
    const std::vector<std::int64_t> steps = checkpoint::list_steps(files, folder);
    if (!steps.empty()) {
      return fmt::format(" (give one checkpoint, such as {})",
                         (folder / checkpoint::step_folder_name(steps.front())).string());
    }
  }
  return {};
}

}  // namespace

Trainer::Trainer(const Setting& setting, comm::World& world)
    : config_(setting.config),
      signals_(setting.signals),
      debug_break_(setting.debug_break),
      world_(world),
      account_(setting.account),
      files_(checkpoint::make_real_file_system()),
      datasets_(open_datasets(config_)),
      data_files_(datasets_.files()),
      loader_(make_loader(config_, datasets_)),
      mesh_(config_.mesh, world.group(),
            [&world](std::vector<int> ranks, std::string name) {
              return world.new_group(std::move(ranks), std::move(name));
            }),
      rank_(config_, mesh_.shard(), mesh_.replicas()),
      schedule_(build_schedule(config_)),
      data_parallel_(rank_.step(), rank_.sharded(), world),
      non_finite_(config_.train),
      report_(config_, world,
              {.tells = account_ != nullptr,
               .is_bound = setting.is_bound,
               .compare_memory = setting.compare_memory}),
      validation_(rank_, datasets_, world, report_.reporter()),
      saved_progress_(progress_),
      saved_config_(config_, setting.start.numerics),
      saved_vocabulary_(datasets_.vocabulary()) {
  check_data(setting.start, data_files_);
  check_input();
  load(setting.start);
  // No rank refuses the input.
  meet();
  if (account_ != nullptr) {
    open_account();
  }
  checkpoints_.emplace(
      *files_, world, state(),
      RunCheckpoints::Options{.config = config_.checkpoint,
                              .folder = setting.start.checkpoints,
                              .resumed_from = loaded_ ? std::optional(loaded_->step) : std::nullopt,
                              .check_lock = account_ == nullptr
                                                ? std::function<void()>()
                                                : [this] { account_->folder->check_held(); }},
      report_.reporter());
}

void Trainer::check_input() {
  check_prompts(config_.eval, datasets_.vocabulary().tokenizer);
  // The tokens that the run begins with: files that are damaged throughout show it here.
  if (config_.train.steps > 0) {
    loader_.micro_batch(0, 0);
  }
  for (const auto& dataset : datasets_.validation) {
    data::sequential_batch(*dataset, 0, 1);
  }
}

checkpoint::TrainingState Trainer::state() {
  return {.model = &rank_.sharded(),
          .replicas = mesh_.replicas(),
          .optimizer = &rank_.optimizer(),
          .average = rank_.average(),
          .objects = {{kSavedConfig, &saved_config_},
                      {kSavedProgress, &saved_progress_},
                      {kSavedVocabulary, &saved_vocabulary_}}};
}

void Trainer::load(const RunStart& start) {
  if (start.resumes && start.checkpoints) {
    rank_.begin_average();
    loaded_ = checkpoint::load_newest(*files_, world_, state(), *start.checkpoints,
                                      {.allow_differences = start.is_changed()});
  }
  if (!loaded_) {
    load_initial();
  }
  if (!loaded_ || !saved_config_.has_average()) {
    rank_.begin_average();
  }
  if (!loaded_) {
    return;
  }
  check<ConfigError>(loaded_->step <= config_.train.steps,
                     "train.steps = {}: the run has done {} steps already, and cannot undo them: "
                     "give at least {}, or another run.dir",
                     config_.train.steps, loaded_->step, loaded_->step);
  steps_done_ = loaded_->step;
  non_finite_.resume(progress_.skipped_in_a_row);
  loader_ = make_loader(config_, datasets_, {.step = steps_done_, .samples = progress_.samples});
  if (account_ != nullptr && !start.is_changed() && steps_done_ > 0 &&
      schedule_.at(steps_done_ - 1) != progress_.lr) {
    log_warning("step {} had the learning rate {}, and this program would give it {}", steps_done_,
                progress_.lr, schedule_.at(steps_done_ - 1));
  }
}

void Trainer::load_initial() {
  const std::string& from = config_.model.init_from;
  if (from.empty()) {
    return;
  }
  if (!std::filesystem::is_directory(from)) {
    load_weights(from, rank_.sharded());
    return;
  }
  checkpoint::Loaded loaded;
  try {
    loaded = checkpoint::load_checkpoint(
        *files_, world_, state(), from,
        {.parameters_only = true, .convert_dtypes = true, .allow_differences = true});
  } catch (DataError& error) {
    error.add_context("model.init_from" + hint_for(*files_, from));
    throw;
  }
  if (account_ != nullptr) {
    for (const std::string& difference : loaded.differences) {
      log_warning("model.init_from: {}", difference);
    }
  }
  check_finite(from, rank_.sharded());
}

void Trainer::open_account() {
  RunFolder& folder = *account_->folder;
  const auto old = folder.open();
  account_->record.emplace(folder.record(), config_,
                           RunFacts{.num_ranks = world_.size(),
                                    .data = data_files_,
                                    .num_parameters = rank_.sharded().num_parameters(),
                                    .flops_per_token = report_.flops_per_token(),
                                    .measured_rate = report_.measured_rate(),
                                    .resumed_step = steps_done_,
                                    .changes = folder.changes()},
                           folder.earlier());
  account_->steps_done = steps_done_;
  report_.reporter().open(folder,
                          {.attempt = account_->record->attempt(),
                           .steps = config_.train.steps,
                           .samples = !config_.eval.prompts.empty(),
                           .resumed_step = steps_done_,
                           .checkpoint = loaded_ ? loaded_->folder.filename().string() : ""});
  folder.write_config(config_);
  report_.tell_start(old, folder.changes(), loaded_, account_->record->attempt());
}

}  // namespace fsdptrain::tools
