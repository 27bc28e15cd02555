#include <vector>

#include "tools/commands.h"

namespace fsdptrain::tools {

Command add_checkpoint_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("checkpoint", "Look into checkpoints and change them");
  command->require_subcommand(1);
  command->footer(
      R"(PATH is a checkpoint (step-00000100), a folder of checkpoints, or that of a run.
A run goes on from its newest checkpoint by itself: start `fsdptrain train` again.

Examples:
  fsdptrain checkpoint inspect runs/gpt2
  fsdptrain checkpoint verify runs/gpt2
  fsdptrain checkpoint diff runs/a/checkpoints/step-00000100 runs/b/checkpoints/step-00000100
  fsdptrain checkpoint export runs/gpt2 --output gpt2.safetensors
  fsdptrain checkpoint reshard runs/gpt2 --ranks 8 --output checkpoints-of-8
  fsdptrain checkpoint prune runs/gpt2 --keep 1)");
  const std::vector<Command> commands{
      add_checkpoint_inspect_command(*command), add_checkpoint_verify_command(*command),
      add_checkpoint_diff_command(*command),    add_checkpoint_reshard_command(*command),
      add_checkpoint_export_command(*command),  add_checkpoint_prune_command(*command),
  };
  return {command, [commands] {
            refuse_ranks("checkpoint");
            return run_parsed(commands);
          }};
}

}  // namespace fsdptrain::tools
