#include <memory>

#include "tools/commands.h"
#include "tools/config.h"
#include "tools/train/trainer.h"

namespace fsdptrain::tools {

Command add_train_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("train", "Train a model by a configuration file");
  command->footer(
      R"(Writes config.toml, metrics.jsonl and weights.safetensors to run.dir, which must be
new or empty. SIGINT and SIGTERM end the run after the step or validation under way, with the
weights written.

Examples:
  fsdptrain train --config configs/quickstart.toml
  fsdptrain train --config configs/quickstart.toml --set train.steps=100 --set run.dir=runs/short)");
  const auto arguments = std::make_shared<ConfigArguments>();
  arguments->add_to(*command);
  return {command, [arguments] {
            const Config config = load_config(arguments->file, arguments->overrides);
            require_key(config, "data.tokens");
            return train(config);
          }};
}

}  // namespace fsdptrain::tools
