#include "checkpoint/load/loader.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/folder/names.h"
#include "checkpoint/folder/scan.h"
#include "checkpoint/folder/visibility.h"
#include "checkpoint/load/fit.h"
#include "checkpoint/load/reader.h"
#include "checkpoint/load/restore.h"
#include "runtime/base/error.h"
#include "runtime/base/host_name.h"
#include "runtime/base/quoted.h"
#include "runtime/base/rank_context.h"

namespace fsdptrain::checkpoint {
namespace {

using Json = nlohmann::json;
using std::filesystem::path;

// On the wire, the first character of what a rank reports: all is well, the checkpoint is damaged,
// it does not fit, something else went wrong.
enum class Ending : char { Done = '+', Damaged = 'd', Misfit = 'm', Failed = '!' };

// What the ranks have come to: the worst of theirs, with the first rank's text.
struct Verdict {
  Ending ending = Ending::Done;
  std::string text;
};

std::string report_of(const std::function<void()>& action) {
  const auto report = [](Ending ending, const std::exception& error) {
    return static_cast<char>(ending) + printable(error.what());
  };
  try {
    action();
  } catch (const DataError& error) {
    return report(Ending::Damaged, error);
  } catch (const ConfigError& error) {
    return report(Ending::Misfit, error);
  } catch (const std::exception& error) {
    return report(Ending::Failed, error);
  }
  return {static_cast<char>(Ending::Done)};
}

Verdict verdict_of(const std::vector<std::string>& reports) {
  const auto is = [](Ending ending) {
    return [ending](const std::string& text) { return text[0] == static_cast<char>(ending); };
  };
  for (const Ending ending : {Ending::Failed, Ending::Misfit, Ending::Damaged}) {
    const auto found = std::ranges::find_if(reports, is(ending));
    if (found != reports.end()) {
      return {.ending = ending,
              .text = fmt::format("rank {}: {}", found - reports.begin(), found->substr(1))};
    }
  }
  return {};
}

[[noreturn]] void raise(const Verdict& verdict, const path& folder) {
  switch (verdict.ending) {
    case Ending::Damaged:
      fail<DataError>("{}: {}", folder.string(), verdict.text);
    case Ending::Misfit:
      fail<ConfigError>("{}: {}", folder.string(), verdict.text);
    case Ending::Done:
    case Ending::Failed:
      break;
  }
  fail<IoError>("{}: {}", folder.string(), verdict.text);
}

// What rank 0 has chosen, or why nothing.
struct Choice {
  path folder;
  std::string manifest_text;
  // None is left.
  bool none = false;
  std::vector<std::string> skipped;
  std::string error;
};

Choice parse_choice(const std::string& text) {
  const Json json = Json::parse(text);
  return {.folder = json.at("folder").get<std::string>(),
          .manifest_text = json.at("manifest"),
          .none = json.at("none"),
          .skipped = json.at("skipped"),
          .error = json.at("error")};
}

class Loading {
 public:
  Loading(FileSystem& files, comm::World& world, const TrainingState& state,
          const LoadOptions& options)
      : files_(files),
        world_(world),
        state_(state),
        options_(options),
        tensors_(tensors_of(state)) {}

  // Of what rank 0 finds with `look`.
  Choice agree_on(const std::function<Choice()>& look) {
    Choice choice;
    if (world_.rank() == 0) {
      try {
        choice = look();
      } catch (const std::exception& error) {
        choice.error = printable(error.what());
      }
    }
    const Json json{{"folder", choice.folder.string()},
                    {"manifest", choice.manifest_text},
                    {"none", choice.none},
                    {"skipped", choice.skipped},
                    {"error", choice.error}};
    const bool is_first = world_.rank() == 0;
    choice = parse_choice(world_.exchange(is_first ? json.dump() : std::string()).front());
    check<IoError>(choice.error.empty(), "rank 0: {}", choice.error);
    return choice;
  }

  // What it has come to on all ranks; `loaded` is filled where it is done.
  Verdict load(const Choice& choice, Loaded& loaded) {
    std::optional<CheckpointReader> reader;
    Fit fitted;
    const std::string report = report_of([&] {
      const path source = choice.folder / kManifestName;
      check_sees(source);
      reader.emplace(files_, choice.folder, parse_manifest(source.string(), choice.manifest_text),
                     &current_context().pool());
      fitted = fit(reader->manifest(), tensors_, state_.objects, options_);
      check<ConfigError>(fitted.misfits.empty(), "it does not fit what is trained: {}",
                         shown_lines(fitted.misfits));
    });
    Verdict verdict = verdict_of(world_.exchange(report));
    if (verdict.ending != Ending::Done) {
      return verdict;
    }
    verdict = verdict_of(
        world_.exchange(report_of([&] { read_values(*reader, tensors_, fitted.matches); })));
    if (verdict.ending != Ending::Done) {
      return verdict;
    }
    const Manifest& manifest = reader->manifest();
    verdict = verdict_of(world_.exchange(report_of([&] { restore_rest(manifest, fitted); })));
    loaded.step = manifest.step;
    loaded.attempt = manifest.attempt;
    loaded.folder = choice.folder;
    loaded.num_ranks = manifest.num_ranks;
    loaded.differences = std::move(fitted.differences);
    return verdict;
  }

 private:
  void check_sees(const path& manifest) {
    check<IoError>(becomes_true([&] { return files_.kind_of(manifest) == EntryKind::File; },
                                options_.visible_within, [] {}),
                   "{}: host {} does not see what rank 0 does: checkpoints need a file system that "
                   "all ranks see",
                   manifest.string(), host_name());
  }

  void restore_rest(const Manifest& manifest, const Fit& fitted) {
    state_.model->bump_epoch();
    if (options_.parameters_only) {
      return;
    }
    restore_steps(tensors_, fitted.matches);
    for (const std::string& name : fitted.objects) {
      try {
        restore_object(*state_.objects.at(name), manifest.objects.at(name), world_.rank(),
                       world_.size());
      } catch (const std::exception& error) {
        // Whatever it throws: its bytes are right, and an older state would be refused as well.
        fail<ConfigError>("object {}: {}", name, error.what());
      }
    }
  }

  FileSystem& files_;
  comm::World& world_;
  const TrainingState& state_;
  LoadOptions options_;
  StateTensors tensors_;
};

// Goes through a folder, newest first; on rank 0.
class Candidates {
 public:
  Candidates(FileSystem& files, path folder) : files_(files), folder_(std::move(folder)) {}

  Choice next() {
    if (!listed_) {
      steps_ = list_steps(files_, folder_);
      listed_ = true;
    }
    Choice choice;
    for (; position_ < steps_.size(); ++position_) {
      try {
        ValidCheckpoint found = look_at_step(files_, folder_, steps_[position_]);
        ++position_;
        choice.folder = std::move(found.folder);
        choice.manifest_text = std::move(found.manifest_text);
        return choice;
      } catch (const DataError& defect) {
        choice.skipped.push_back(
            fmt::format("{}: {}", step_folder_name(steps_[position_]), printable(defect.what())));
      }
    }
    choice.none = true;
    return choice;
  }

 private:
  FileSystem& files_;
  path folder_;
  bool listed_ = false;
  std::vector<std::int64_t> steps_;
  std::size_t position_ = 0;
};

}  // namespace

std::optional<Loaded> load_newest(FileSystem& files, comm::World& world, const TrainingState& state,
                                  const path& folder, const LoadOptions& options) {
  Loading loading(files, world, state, options);
  Candidates candidates(files, folder);
  Loaded loaded;
  while (true) {
    Choice choice = loading.agree_on([&] { return candidates.next(); });
    std::ranges::move(choice.skipped, std::back_inserter(loaded.skipped));
    if (choice.none) {
      check<DataError>(loaded.skipped.empty(),
                       "{}: none of its checkpoints can be had: {}: move them away to begin anew",
                       folder.string(), shown_lines(loaded.skipped));
      return std::nullopt;
    }
    const Verdict verdict = loading.load(choice, loaded);
    if (verdict.ending == Ending::Done) {
      return loaded;
    }
    if (verdict.ending != Ending::Damaged) {
      raise(verdict, choice.folder);
    }
    loaded.skipped.push_back(
        fmt::format("{}: {}", choice.folder.filename().string(), verdict.text));
  }
}

Loaded load_checkpoint(FileSystem& files, comm::World& world, const TrainingState& state,
                       const path& checkpoint, const LoadOptions& options) {
  Loading loading(files, world, state, options);
  const Choice choice = loading.agree_on([&] {
    Choice found{
        .folder = checkpoint, .manifest_text = {}, .none = false, .skipped = {}, .error = {}};
    try {
      found.manifest_text = look_at(files, checkpoint).manifest_text;
    } catch (const DataError& error) {
      found.none = true;
      found.skipped.emplace_back(printable(error.what()));
    }
    return found;
  });
  check<DataError>(!choice.none, "{}: is no checkpoint: {}", checkpoint.string(),
                   shown_lines(choice.skipped));
  Loaded loaded;
  const Verdict verdict = loading.load(choice, loaded);
  if (verdict.ending != Ending::Done) {
    raise(verdict, checkpoint);
  }
  return loaded;
}

}  // namespace fsdptrain::checkpoint
