#include "tools/commands.h"

#include "runtime/base/error.h"

namespace fsdptrain::tools {

int run_parsed(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (command.app->parsed()) {
      return command.run();
    }
  }
  fail<ConfigError>("no command was given: see --help");
}

void ConfigArguments::add_to(CLI::App& app) {
  app.add_option_function<std::string>(
         "--config", [this](const std::string& path) { file = path; },
         "TOML file of the run; without it, the defaults (docs/config.md)")
      ->type_name("FILE");
  app.add_option("--set", overrides, "override one key of the file; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->expected(1)
      ->take_all();
}

}  // namespace fsdptrain::tools
