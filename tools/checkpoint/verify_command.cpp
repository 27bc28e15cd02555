#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/convert/verify.h"
#include "checkpoint/folder/scan.h"
#include "checkpoint/io/file_system.h"
#include "runtime/base/error.h"
#include "tools/checkpoint/describe.h"
#include "tools/checkpoint/locate.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/plan/byte_size.h"
#include "tools/progress.h"
#include "tools/stop_signals.h"

namespace fsdptrain::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::vector<fs::path> paths;
  bool json = false;
};

struct Verified {
  fs::path path;
  std::optional<checkpoint::ValidCheckpoint> checkpoint;
  std::vector<std::string> problems;

  std::uint64_t nbytes() const { return checkpoint ? totals_of(checkpoint->manifest).nbytes : 0; }
};

std::vector<Verified> find(checkpoint::FileSystem& files, const std::vector<fs::path>& paths) {
  std::vector<Verified> found;
  for (const fs::path& given : paths) {
    for (const fs::path& path : list_checkpoints(files, given)) {
      Verified& verified =
          found.emplace_back(Verified{.path = path, .checkpoint = {}, .problems = {}});
      try {
        verified.checkpoint = look_at_checkpoint(files, path);
      } catch (const DataError& problem) {
        verified.problems.emplace_back(problem.what());
      }
    }
  }
  return found;
}

void read_all(checkpoint::FileSystem& files, std::vector<Verified>& checkpoints) {
  std::uint64_t total = 0;
  for (const Verified& verified : checkpoints) {
    total += verified.nbytes();
  }
  const StopSignals signals;
  Progress progress("verify", total);
  std::uint64_t done = 0;
  for (Verified& verified : checkpoints) {
    if (verified.checkpoint) {
      verified.problems =
          checkpoint::verify(files, *verified.checkpoint, [&](std::uint64_t nbytes) {
            signals.check_stop();
            progress.update(done += nbytes);
          });
    }
  }
}

std::string text_of(const Verified& verified) {
  if (verified.problems.empty()) {
    return fmt::format("{}  all right: {} files, {}\n", verified.path.string(),
                       verified.checkpoint->manifest.files.size(),
                       size_text(static_cast<std::int64_t>(verified.nbytes())));
  }
  std::string text = fmt::format("{}  DAMAGED\n", verified.path.string());
  for (const std::string& problem : verified.problems) {
    text += fmt::format("  {}\n", problem);
  }
  return text;
}

Json json_of(const Verified& verified) {
  return {{"path", verified.path.string()},
          {"ok", verified.problems.empty()},
          {"files", verified.checkpoint ? verified.checkpoint->manifest.files.size() : 0},
          {"nbytes", verified.nbytes()},
          {"problems", verified.problems}};
}

void verify(const Arguments& arguments) {
  const auto files = checkpoint::make_real_file_system();
  std::vector<Verified> checkpoints = find(*files, arguments.paths);
  read_all(*files, checkpoints);
  std::size_t num_damaged = 0;
  std::string text;
  Json json = Json::array();
  for (const Verified& verified : checkpoints) {
    num_damaged += verified.problems.empty() ? 0 : 1;
    text += text_of(verified);
    json.push_back(json_of(verified));
  }
  fmt::print("{}", arguments.json ? to_line({{"checkpoints", json}}) : text);
  check<DataError>(num_damaged == 0,
                   "checkpoint verify: {} of {} checkpoints are damaged: a run goes on from the "
                   "newest that is not",
                   num_damaged, checkpoints.size());
}

}  // namespace

Command add_checkpoint_verify_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("verify", "Read every byte and say what is damaged");
  command->footer(
      R"(Reads one block at a time and compares it with its digest. For each problem it names the file,
the place in it, and the tensors that have a part there. Exit code 2 if anything is damaged.

Examples:
  fsdptrain checkpoint verify runs/gpt2
  fsdptrain checkpoint verify --json runs/gpt2/checkpoints/step-00000100)");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("path", arguments->paths, "checkpoints, folders of such, or of runs")
      ->required()
      ->type_name("PATH");
  command->add_flag("--json", arguments->json, "one JSON object");
  return {command, [arguments] {
            verify(*arguments);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
