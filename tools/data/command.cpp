#include <vector>

#include "tools/commands.h"

namespace fsdptrain::tools {

Command add_data_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("data", "Make token files and look into them");
  command->require_subcommand(1);
  command->footer(R"(Examples:
  fsdptrain data prepare --text books/ --output books.tok
  fsdptrain data inspect books.tok
  fsdptrain data baseline --tokens books.tok)");
  const std::vector<Command> commands{
      add_data_prepare_command(*command),
      add_data_inspect_command(*command),
      add_data_baseline_command(*command),
  };
  return {command, [commands] {
            refuse_ranks("data");
            return run_parsed(commands);
          }};
}

}  // namespace fsdptrain::tools
