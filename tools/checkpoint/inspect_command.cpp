#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/folder/scan.h"
#include "checkpoint/io/file_system.h"
#include "runtime/base/error.h"
#include "tools/checkpoint/describe.h"
#include "tools/checkpoint/locate.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/plan/byte_size.h"

namespace fsdptrain::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Arguments {
  fs::path path;
  bool all = false;
  bool json = false;
};

// What is in a folder of several, or why it is not valid.
struct Listed {
  fs::path path;
  std::optional<checkpoint::Manifest> manifest;
  std::string problem;
};

Listed list(checkpoint::FileSystem& files, const fs::path& path) {
  try {
    return {path, look_at_checkpoint(files, path).manifest, ""};
  } catch (const DataError& error) {
    return {path, std::nullopt, error.what()};
  }
}

std::string line_of(const Listed& listed) {
  if (!listed.manifest) {
    return fmt::format("{}  not valid: {}\n", listed.path.string(), listed.problem);
  }
  return fmt::format("{}  {} ranks, {}, {}\n", listed.path.string(), listed.manifest->num_ranks,
                     size_text(static_cast<std::int64_t>(totals_of(*listed.manifest).nbytes)),
                     listed.manifest->created);
}

void inspect(const Arguments& arguments) {
  const auto files = checkpoint::make_real_file_system();
  const std::vector<fs::path> paths = list_checkpoints(*files, arguments.path);
  const Listed newest = list(*files, paths.back());
  if (paths.size() == 1) {
    check<DataError>(newest.manifest.has_value(), "{}", newest.problem);
  }
  std::string text;
  Json json = Json::array();
  for (const fs::path& path : paths) {
    const Listed listed = path == newest.path ? newest : list(*files, path);
    if (listed.manifest) {
      json.push_back(to_json(path, *listed.manifest));
    } else {
      json.push_back({{"path", path.string()}, {"problem", listed.problem}});
    }
    text += paths.size() == 1 ? describe(path, *listed.manifest, arguments.all) : line_of(listed);
  }
  fmt::print("{}", arguments.json ? to_line({{"checkpoints", json}}) : text);
}

}  // namespace

Command add_checkpoint_inspect_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("inspect", "Say what checkpoints hold");
  command->footer(
      R"(Reads the manifest and the sizes of files, no values: `checkpoint verify` reads those.
Of a folder with several checkpoints each has a line.

Examples:
  fsdptrain checkpoint inspect runs/gpt2
  fsdptrain checkpoint inspect --tensors runs/gpt2/checkpoints/step-00000100)");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("path", arguments->path, "a checkpoint, a folder of such, or that of a run")
      ->required()
      ->type_name("PATH");
  command->add_flag("--tensors", arguments->all, "a line for each tensor, too");
  command->add_flag("--json", arguments->json, "one JSON object, with all that the manifests say");
  return {command, [arguments] {
            inspect(*arguments);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
