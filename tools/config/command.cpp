#include <fmt/core.h>
#include <memory>

#include "tools/commands.h"
#include "tools/config/config.h"
#include "tools/config/print.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {

Command add_config_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("config", "Check a configuration and print all of it, defaults included");
  command->footer(R"(Examples:
  fsdptrain config                                        the defaults
  fsdptrain config --config run.toml                        what a file means
  fsdptrain config --config run.toml --set train.steps=100  the same with one key changed
  fsdptrain config --markdown                             every key, its type and its meaning)");

  struct Arguments {
    ConfigArguments config;
    bool markdown = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  arguments->config.add_to(*command);
  command->add_flag("--markdown", arguments->markdown, "print the reference of all keys instead");

  return {command, [arguments] {
            const Config config = load_config(arguments->config.file, arguments->config.overrides);
            fmt::print("{}", arguments->markdown ? config_reference() : to_toml(config));
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
