#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/convert/verify.h"
#include "checkpoint/folder/lock.h"
#include "checkpoint/folder/names.h"
#include "checkpoint/folder/retention.h"
#include "checkpoint/folder/scan.h"
#include "checkpoint/folder/staging.h"
#include "checkpoint/io/file_system.h"
#include "runtime/base/error.h"
#include "tools/checkpoint/describe.h"
#include "tools/checkpoint/locate.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/stop_signals.h"

namespace fsdptrain::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxKept = 1'000'000;

struct Arguments {
  fs::path path;
  std::int64_t keep = 0;
  bool dry_run = false;
  bool json = false;
};

struct Pruned {
  std::vector<std::string> kept;
  std::vector<std::string> removed;
  // Left alone, and why.
  std::vector<std::string> invalid;
  std::vector<std::string> problems;
};

Pruned prune(const Arguments& arguments) {
  const auto files = checkpoint::make_real_file_system();
  const fs::path folder = find_checkpoints(*files, arguments.path);
  Pruned pruned;
  std::vector<std::unique_ptr<checkpoint::RunLock>> locks;
  if (!arguments.dry_run) {
    locks = lock_runs_of(*files, arguments.path);
    pruned.problems = checkpoint::sweep(*files, folder);
  }
  const checkpoint::Scan scan = checkpoint::scan(*files, folder);
  pruned.invalid = scan.invalid;
  const StopSignals signals;
  for (const std::int64_t step : scan.valid) {
    const std::string name = checkpoint::step_folder_name(step);
    if (static_cast<std::int64_t>(pruned.kept.size()) < arguments.keep) {
      // What stays is read: nothing is removed for the sake of one that is damaged.
      const std::vector<std::string> damage =
          checkpoint::verify(*files, checkpoint::look_at_step(*files, folder, step),
                             [&](std::uint64_t /*nbytes*/) { signals.check_stop(); });
      (damage.empty() ? pruned.kept : pruned.invalid)
          .push_back(damage.empty() ? name : fmt::format("{}: {}", name, damage.front()));
      continue;
    }
    try {
      if (!arguments.dry_run) {
        checkpoint::remove_checkpoint(*files, folder, step, checkpoint::make_attempt());
      }
      pruned.removed.push_back(name);
    } catch (const IoError& problem) {
      pruned.problems.emplace_back(problem.what());
    }
  }
  return pruned;
}

std::string text_of(const Pruned& pruned, bool dry_run) {
  std::string text;
  for (const std::string& name : pruned.removed) {
    text += fmt::format("{} {}\n", dry_run ? "would remove" : "removed", name);
  }
  for (const std::string& name : pruned.kept) {
    text += fmt::format("kept {}\n", name);
  }
  for (const std::string& problem : pruned.invalid) {
    text += fmt::format("not valid, left alone: {}\n", problem);
  }
  return text;
}

void run_prune(const Arguments& arguments) {
  const Pruned pruned = prune(arguments);
  const Json json{{"kept", pruned.kept},
                  {"removed", pruned.removed},
                  {"invalid", pruned.invalid},
                  {"problems", pruned.problems}};
  fmt::print("{}", arguments.json ? to_line(json) : text_of(pruned, arguments.dry_run));
  check<IoError>(pruned.problems.empty(), "checkpoint prune: {}", fmt::join(pruned.problems, "; "));
}

}  // namespace

Command add_checkpoint_prune_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("prune", "Remove old checkpoints");
  command->footer(
      R"(Keeps the newest valid ones, and whatever is not valid or no checkpoint; removes what attempts to
save have left that came to no end. Refused while a run writes there. What is to stay is read first: a
damaged one counts for nothing.

Examples:
  fsdptrain checkpoint prune runs/gpt2 --keep 1 --dry-run
  fsdptrain checkpoint prune runs/gpt2 --keep 1)");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("path", arguments->path, "a folder of checkpoints, or that of a run")
      ->required()
      ->type_name("PATH");
  command->add_option("--keep", arguments->keep, "how many of the newest valid ones stay")
      ->required()
      ->check(whole_number(1, kMaxKept))
      ->type_name("N");
  command->add_flag("--dry-run", arguments->dry_run,
                    "say what would be removed, and remove nothing");
  command->add_flag("--json", arguments->json, "one JSON object");
  return {command, [arguments] {
            run_prune(*arguments);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
