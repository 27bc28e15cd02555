#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fmt/format.h>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "comm/error.h"
#include "runtime/base/edit_distance.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"
#include "tools/build_info.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/launch/exec_stage.h"
#include "tools/launch/keeper.h"
#include "tools/launch/words.h"
#include "tools/standard_output.h"

namespace fsdptrain::tools {
namespace {

constexpr const char* kFooter = R"(Examples:
  fsdptrain data prepare --text books/ --output books.bin
  fsdptrain model --config configs/llama-10m-bytes.toml
  fsdptrain plan --config configs/llama3-70b.toml --world 256 --memory 80GiB
  fsdptrain train --config configs/llama-10m-bytes.toml --set data.tokens=books.bin
  fsdptrain eval --run runs/llama-10m-bytes
  fsdptrain generate --run runs/llama-10m-bytes --prompt "In the beginning"
  fsdptrain config --set train.steps=100 > run.toml
  fsdptrain launch --nproc-per-node 2 -- train --config run.toml
  fsdptrain bench step

Exit codes: 0 done, 1 failed at run time, 2 wrong command line, configuration or input,
130 and 143 stopped by SIGINT and SIGTERM; of launch 75, too: saved, start again.)";

// On one line, without what would steer a terminal, and no longer than anybody reads. What several
// ranks do has a line for each.
enum class Lines : std::uint8_t { One, Several };
int report(std::string_view text, int exit_code, Lines lines = Lines::One) {
  constexpr std::size_t kLongest = 4000;
  std::string line;
  for (const char letter : text.substr(0, kLongest)) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\n') {
      line += lines == Lines::One ? ' ' : '\n';
    } else if (code < 0x20 || code == 0x7f) {
      line += fmt::format("\\x{:02x}", code);
    } else {
      line += letter;
    }
  }
  std::fputs(fmt::format("fsdptrain: {}{}\n", line, text.size() > kLongest ? " ..." : "").c_str(),
             stderr);
  return exit_code;
}

// The innermost command named so far: its --help fits the mistake.
std::string path_of(const CLI::App& app) {
  const auto subcommands = app.get_subcommands();
  return app.get_name() + (subcommands.empty() ? "" : " " + path_of(*subcommands.front()));
}

// What is wrong where the innermost command named so far wants another word, and the words that it
// knows; elsewhere what the parser says.
std::string complaint_of(const CLI::App& app, const CLI::ParseError& error) {
  const auto subcommands = app.get_subcommands();
  if (!subcommands.empty()) {
    return complaint_of(*subcommands.front(), error);
  }
  std::vector<std::string> names;
  // Groups of options have no name, hidden commands no group.
  const auto is_named = [](const CLI::App* subcommand) {
    return !subcommand->get_name().empty() && !subcommand->get_group().empty();
  };
  for (const CLI::App* subcommand : app.get_subcommands(is_named)) {
    names.push_back(subcommand->get_name());
  }
  if (names.empty()) {
    return error.what();
  }
  const std::string choices = fmt::format("one of {}", fmt::join(names, ", "));
  const std::vector<std::string> words = app.remaining();
  const auto word =
      std::ranges::find_if(words, [](const std::string& text) { return !text.starts_with('-'); });
  if (word == words.end()) {
    return fmt::format("{}: {}", error.what(), choices);
  }
  const auto distance = [&](const std::string& name) { return edit_distance(*word, name); };
  const std::string& nearest = *std::ranges::min_element(names, {}, distance);
  const bool is_near = 2 * distance(nearest) <= word->size();
  return fmt::format("{} is no command{}: {}", in_quotes(*word),
                     is_near ? fmt::format(" (did you mean {}?)", nearest) : "", choices);
}

// What follows the program's name, but that of `launch` up to its program.
std::vector<std::string> take_launch_words(const CLI::App& app, std::vector<std::string> words,
                                           LaunchWords& launch) {
  if (!words.empty() && words.front() == "launch") {
    launch = split_launch_words(*app.get_subcommand("launch"), {words.begin() + 1, words.end()});
    words.resize(1);
    words.insert(words.end(), launch.options.begin(), launch.options.end());
  }
  return words;
}

int run(int argc, char** argv) {
  // A file beyond `ulimit -f` is then an error of the write, which has a text and cleans up.
  std::signal(SIGXFSZ, SIG_IGN);
  // So is a reader of standard output that has gone: a run goes on, and writes its weights.
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Trains transformer language models.", "fsdptrain");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("fsdptrain {}", build_info().version));
  LaunchWords launch_words;
  const std::vector<Command> commands{
      add_data_command(app),
      add_model_command(app),
      add_plan_command(app),
      add_train_command(app),
      add_launch_command(app, launch_words),
      add_eval_command(app),
      add_generate_command(app),
      add_checkpoint_command(app),
      add_config_command(app),
      add_flight_command(app),
      add_bench_command(app),
      add_version_command(app),
  };
  try {
    std::vector<std::string> words = take_launch_words(app, {argv + 1, argv + argc}, launch_words);
    // The parser takes them from the back.
    std::ranges::reverse(words);
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream text;  // of --help or --version
      app.exit(error, text, text);
      print_now(text.str());
      return static_cast<int>(ExitCode::Done);
    }
    return report(fmt::format("{}: see {} --help", complaint_of(app, error), path_of(app)),
                  static_cast<int>(ExitCode::Refused));
  }
  const int exit_code = run_parsed(commands);
  if (exit_code == static_cast<int>(ExitCode::Done)) {
    finish_standard_output();
  }
  return exit_code;
}

}  // namespace
}  // namespace fsdptrain::tools

int main(int argc, char** argv) {
  using namespace fsdptrain;  // NOLINT(google-build-using-namespace): the body of main only.
  tools::occupy_standard_streams();
  try {
    // Before anything that takes time, and before signals are ignored: it becomes another program.
    if (argc > 1 && argv[1] == tools::kExecStage) {
      return tools::run_exec_stage({argv + 2, argv + argc});
    }
    if (argc > 1 && argv[1] == tools::kKeeper) {
      return tools::run_keeper({argv + 2, argv + argc});
    }
    return tools::run(argc, argv);
  } catch (const OutOfMemoryError& error) {
    return tools::report(
        fmt::format("{}: lower train.micro_batch, train.seq_len or the size of the model "
                    "(fsdptrain model says what a step takes)",
                    error.what()),
        static_cast<int>(tools::ExitCode::Failed));
  } catch (const comm::TimeoutError& error) {
    return tools::report(error.what(), tools::exit_code_of(error), tools::Lines::Several);
  } catch (const std::bad_alloc&) {
    return tools::report(
        "the system has no more memory: lower train.micro_batch, train.seq_len or "
        "the size of the model",
        static_cast<int>(tools::ExitCode::Failed));
  } catch (const std::exception& error) {
    return tools::report(error.what(), tools::exit_code_of(error));
  }
}
