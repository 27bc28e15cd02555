#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>

#include "comm/ranks.h"
#include "runtime/base/error.h"
#include "tools/bench/process_memory.h"
#include "tools/commands.h"
#include "tools/config/config.h"
#include "tools/exit_code.h"
#include "tools/plan/byte_size.h"
#include "tools/plan/plan_report.h"
#include "tools/standard_output.h"

namespace fsdptrain::tools {
namespace {

struct Arguments {
  ConfigArguments config;
  std::optional<int> world;
  int rank = 0;
  std::optional<std::string> memory;
  bool json = false;
};

std::int64_t parse_memory(const std::string& text) {
  try {
    return parse_size(text);
  } catch (const ConfigError& error) {
    fail<ConfigError>("--memory: {}", error.what());
  }
}

// What [mesh] asks for, if it says so.
int ranks_of(const MeshConfig& mesh) {
  const std::int64_t ranks = mesh.replicate * std::max(mesh.shard, std::int64_t{1});
  check<ConfigError>(ranks <= comm::kMaxWorldSize,
                     "mesh.replicate x mesh.shard = {}: there are at most {} ranks", ranks,
                     comm::kMaxWorldSize);
  return static_cast<int>(ranks);
}

int plan(const Arguments& arguments) {
  // Before anything is made.
  const auto process = static_cast<std::int64_t>(resident_bytes());
  const Config config = load_config(arguments.config.file, arguments.config.overrides);
  const int world = arguments.world.value_or(ranks_of(config.mesh));
  check<ConfigError>(arguments.rank < world, "--rank {}: with {} ranks it must be 0 to {}",
                     arguments.rank, world, world - 1);
  const MemoryPlan planned = plan_memory(config, world, arguments.rank);
  PlanReport report{.config = config, .plan = planned, .process = process};
  if (arguments.memory) {
    report.limit = parse_memory(*arguments.memory);
    report.suggestions = suggestions(config, planned, *report.limit, process);
  }
  print_now(arguments.json ? as_json(report) : as_text(report));
  check<ConfigError>(
      report.fits(), "plan: a rank needs {}, {} more than --memory {}", size_text(report.needed()),
      size_text(report.needed() - report.limit.value_or(0)), arguments.memory.value_or(""));
  return static_cast<int>(ExitCode::Done);
}

}  // namespace

Command add_plan_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "plan", "Say what memory a rank of a run takes and what it moves, before there is a run");
  command->footer(
      R"(Runs steps of one rank on a device without memory, in the midst of ranks that do not exist: the
memory by purpose and when most of it is in use, the bytes that a step moves, the slots that
gathered units take turns in, and padding. What the allocator hands out is exact, for the
instruction set and the threads that the plan names; docs/planning.md says what is not in it.

With --memory it says whether a rank fits, and if not, what would make it: each change is planned
and printed with its cost, cheapest first; the command then ends with exit code 2.

Examples:
  fsdptrain plan --config configs/llama3-70b.toml --world 256 --memory 80GiB
  fsdptrain plan --config configs/gpt2-124m.toml --world 8 --set train.micro_batch=4
  fsdptrain plan --config configs/llama3-8b.toml --world 64 --rank 63 --json)");
  const auto arguments = std::make_shared<Arguments>();
  arguments->config.add_to(*command);
  command
      ->add_option("--world", arguments->world,
                   "ranks of the run; without it, those of [mesh], or one")
      ->check(whole_number(1, comm::kMaxWorldSize));
  command
      ->add_option("--rank", arguments->rank,
                   "which of them; rank 0 has most to do: it gathers weights to write them")
      ->check(whole_number(0, comm::kMaxWorldSize - 1))
      ->capture_default_str();
  command->add_option("--memory", arguments->memory, "what there is for a rank, as 80GiB or 24GB")
      ->type_name("SIZE");
  command->add_flag("--json", arguments->json, "print one JSON object instead");
  return {command, [arguments] { return plan(*arguments); }};
}

}  // namespace fsdptrain::tools
