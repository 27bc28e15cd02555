#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// The words of `fsdptrain launch OPTIONS [--] PROGRAM ARGUMENTS`: the program's are not looked at.
namespace fsdptrain::tools {

struct LaunchWords {
  // As the parser of options wants them: torchrun's spellings with _ have -, and options whose
  // value may be left out have it.
  std::vector<std::string> options;
  std::vector<std::string> program;
  // Whether -- stood before it: then its first word may be a subcommand of ours.
  bool has_mark = false;
};

// `words` are those behind "launch"; `launch` knows the options.
LaunchWords split_launch_words(const CLI::App& launch, const std::vector<std::string>& words);

}  // namespace fsdptrain::tools
