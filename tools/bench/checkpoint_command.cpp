#include <filesystem>
#include <memory>
#include <string_view>

#include "tools/bench/arguments.h"
#include "tools/bench/bench.h"
#include "tools/bench/temporary_folder.h"
#include "tools/commands.h"

namespace fsdptrain::tools {
namespace {

constexpr int kRounds = 5;

struct Arguments : BenchArguments {
  std::filesystem::path folder;
  bool serve = false;
};

constexpr std::string_view kKeys[] = {"model.", "optimizer.", "run.seed", "train.compute_dtype"};

int run(const Arguments& arguments) {
  const Config config = config_of(arguments, kKeys);
  const std::filesystem::path folder =
      arguments.folder.empty() ? temporary_folder() : arguments.folder;
  return run_bench(arguments, [&] {
    return arguments.serve ? serve_checkpoints(config, folder)
                           : bench_checkpoint(config, folder, arguments.rounds);
  });
}

}  // namespace

Command add_bench_checkpoint_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("checkpoint", "Time the saving, loading and verifying of checkpoints");
  command->footer(
      R"(One rank with a model and AdamW, in turns with what cannot be done without: writing as many bytes
and bringing them to the device, a memcpy, reading the same file. The files are removed again. Reading
is from the memory of the system, where the file fits there: that of the device hides all else.

Examples:
  fsdptrain bench checkpoint
  fsdptrain bench checkpoint --folder /data --model llama3-1b --rounds 3
  fsdptrain bench checkpoint --model gpt2 --set model.num_layers=2 --json)");
  const auto arguments = std::make_shared<Arguments>();
  add_bench_arguments(*command, *arguments, "--rounds", kRounds);
  add_model_arguments(*command, *arguments);
  command
      ->add_option("--folder", arguments->folder,
                   "where files are made and removed again (TMPDIR, else /tmp)")
      ->type_name("FOLDER");
  command->add_flag("--serve", arguments->serve,
                    "instead: after the line \"ready\", for each line of standard input a save, a "
                    "memcpy, a save in the background and a load, and a line with the seconds of "
                    "each (tools/bench/compare_pytorch)");
  return {command, [arguments] { return run(*arguments); }};
}

}  // namespace fsdptrain::tools
