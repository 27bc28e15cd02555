#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/convert/reshard.h"
#include "checkpoint/io/file_system.h"
#include "checkpoint/load/reader.h"
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

constexpr std::uint64_t kMaxRanks = 1 << 20;

struct Arguments {
  fs::path path;
  fs::path output;
  std::int64_t num_ranks = 0;
  bool json = false;
};

void reshard(const Arguments& arguments) {
  const auto files = checkpoint::make_real_file_system();
  checkpoint::CheckpointReader source = open_checkpoint(*files, arguments.path);
  const std::uint64_t nbytes = checkpoint::values_nbytes(source.manifest().layout);
  fs::path written;
  check_apart(*files, arguments.output);
  const auto locks = lock_runs_of(*files, arguments.output);
  {
    const StopSignals signals;
    Progress progress("reshard", nbytes);
    std::uint64_t done = 0;
    naming_one_before(*files, arguments.path, source, [&] {
      written = checkpoint::reshard(*files, source, arguments.output, arguments.num_ranks,
                                    [&](std::uint64_t part) {
                                      signals.check_stop();
                                      progress.update(done += part);
                                    });
    });
  }
  if (arguments.json) {
    const nlohmann::ordered_json json{
        {"path", written.string()}, {"ranks", arguments.num_ranks}, {"nbytes", nbytes}};
    fmt::print("{}", to_line(json));
  } else {
    fmt::print("{}: {} of {} ranks\n", written.string(),
               size_text(static_cast<std::int64_t>(nbytes)), arguments.num_ranks);
  }
}

}  // namespace

Command add_checkpoint_reshard_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("reshard", "Write a checkpoint as one of another number of ranks");
  command->footer(
      R"(Not needed to train on another number of ranks: every checkpoint loads on any. It spares many
ranks the reading of few large files, and few ranks that of many small ones. The same bits.

Examples:
  fsdptrain checkpoint reshard runs/gpt2 --ranks 8 --output checkpoints-of-8)");
  const auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("path", arguments->path,
                   "a checkpoint; of a folder the newest with all its files")
      ->required()
      ->type_name("PATH");
  command->add_option("--ranks", arguments->num_ranks, "how many files it is cut into")
      ->required()
      ->check(whole_number(1, kMaxRanks))
      ->type_name("N");
  command
      ->add_option("--output", arguments->output,
                   "a folder of checkpoints, made where it is missing, which gets step-N")
      ->required()
      ->check(not_empty())
      ->type_name("FOLDER");
  command->add_flag("--json", arguments->json, "one JSON object");
  return {command, [arguments] {
            reshard(*arguments);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
