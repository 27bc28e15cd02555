#include <memory>
#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/config/changes.h"
#include "tools/config/config.h"
#include "tools/plan/comparison.h"
#include "tools/plan/memory_plan.h"
#include "tools/train/train.h"

namespace fsdptrain::tools {

Command add_train_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("train", "Train a model by a configuration file");
  command->footer(
      R"(Into run.dir goes all that the run leaves behind:
  config.toml              the configuration, defaults included: it gives the same run again
  run.json                 program, command line, machine, data, and how the run ended
  metrics.jsonl            one JSON object a line, every log.every steps and at each validation
  samples.jsonl            what the model makes of eval.prompts at each validation
  weights.safetensors      the weights at the end, for fsdptrain generate and for other tools
  weights_ema.safetensors  their average, with train.ema_decay
  checkpoints/             all that it takes to go on ([checkpoint] says when they are saved)

The same command again goes on with a run that has not come to its end: from its last checkpoint,
on any number of ranks, or anew where it has none. A run that is done is left alone. Where the
configuration is another in what decides about numbers, the keys are named and nothing is changed.

SIGINT (Ctrl-C) and SIGTERM end the run after the step or validation under way, with a checkpoint
and the weights written: exit code 75, run me again. A second one ends it at once, without them. Lines and samples that cannot
be written (a full disk) are warned about once: the run goes on, writes its weights and
ends with exit code 1. Weights that cannot be written are exit code 1, too; no file is ever
half written.

Under a launcher (fsdptrain launch, torchrun, srun or mpirun, all ranks on one host) this process
is one rank of the job: it keeps its part of the model and of the optimizer, gathers blocks for the
moment they are needed, and computes every N-th micro-batch of a step ([shard] and [mesh] say how).
Rank 0 alone writes and prints. run.threads then counts the threads of each rank.

With --threads-as-ranks N, N threads of this process train as N ranks. Losses are the same up to
rounding. It is there to see and test training on several ranks on one machine; one rank with all
threads takes a fraction of the memory.

Examples:
  fsdptrain data prepare --text books/ --output books.bin
  fsdptrain train --config configs/quickstart.toml --set data.tokens=books.bin
  fsdptrain eval --run runs/quickstart
  fsdptrain generate --run runs/quickstart --prompt "In the beginning" --tokens 400
  fsdptrain train --config configs/quickstart.toml --set train.steps=100 --set run.dir=runs/short
  fsdptrain train --config runs/short/config.toml --overwrite
  fsdptrain train --config runs/short/config.toml --set train.steps=200 --allow-change=steps
  fsdptrain train --config runs/short/config.toml --set run.dir=runs/longer \
      --set model.init_from=runs/short/weights.safetensors
  fsdptrain config --markdown    explains every key)");
  struct Arguments {
    ConfigArguments config;
    bool overwrite = false;
    std::vector<std::string> allow_change;
    int threads_as_ranks = 0;
  };
  const auto arguments = std::make_shared<Arguments>();
  arguments->config.add_to(*command);
  command->add_flag(
      "--overwrite", arguments->overwrite,
      "begin anew: the run in run.dir is moved to <run.dir>.old-<number> once all else is checked");
  command
      ->add_option("--allow-change", arguments->allow_change,
                   "go on with a run whose configuration differs in these keys, like "
                   "lr,train.steps,data; what changed is noted in run.json")
      ->delimiter(',')
      ->type_name("KEYS");
  command
      ->add_option("--threads-as-ranks", arguments->threads_as_ranks,
                   "ranks that train together as threads of this process, with run.threads divided "
                   "among them; at most one for each micro-batch of a step")
      ->check(whole_number(1, 64))
      ->type_name("N");
  const CompareMemory compare_memory = [](const Config& config, const comm::Member& member,
                                          int threads, const MemoryCounters& measured) {
    return planned_and_measured(plan_memory(config, member.size, member.rank, threads), measured);
  };
  return {command, [arguments, compare_memory] {
            const Config config = load_config(arguments->config.file, arguments->config.overrides);
            require_key(config, "data.tokens");
            return train(
                config,
                {.folder = {.overwrite = arguments->overwrite,
                            .allowed = named_keys(arguments->allow_change, "--allow-change")},
                 .threads_as_ranks = arguments->threads_as_ranks,
                 .compare_memory = compare_memory});
          }};
}

}  // namespace fsdptrain::tools
