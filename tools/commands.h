#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The subcommands of fsdptrain, one file each: `plan` is plan/command.cpp, `data prepare` is
// data/prepare_command.cpp, and one without a folder is here (eval_command.cpp). A file declares
// its arguments on `app` and returns what runs once they are parsed; main.cpp and the command.cpp
// of a folder list them.
namespace fsdptrain::tools {

struct LaunchWords;

struct Command {
  CLI::App* app;
  // Returns the exit code (exit_code.h); errors are exceptions.
  std::function<int()> run;
};

Command add_bench_command(CLI::App& app);
Command add_checkpoint_command(CLI::App& app);
Command add_config_command(CLI::App& app);
Command add_data_command(CLI::App& app);
Command add_eval_command(CLI::App& app);
Command add_flight_command(CLI::App& app);
Command add_generate_command(CLI::App& app);
// The words of the command line that the parser does not get; they outlive the command.
Command add_launch_command(CLI::App& app, const LaunchWords& words);
Command add_model_command(CLI::App& app);
Command add_plan_command(CLI::App& app);
Command add_train_command(CLI::App& app);
Command add_version_command(CLI::App& app);

// The second is one rank of the first, and hidden.
Command add_bench_comm_command(CLI::App& app);
Command add_bench_comm_rank_command(CLI::App& app);
Command add_bench_checkpoint_command(CLI::App& app);
Command add_bench_data_command(CLI::App& app);
Command add_bench_gemm_command(CLI::App& app);
Command add_bench_launch_command(CLI::App& app);
Command add_bench_memory_command(CLI::App& app);
Command add_bench_ops_command(CLI::App& app);
Command add_bench_step_command(CLI::App& app);

Command add_checkpoint_diff_command(CLI::App& app);
Command add_checkpoint_export_command(CLI::App& app);
Command add_checkpoint_inspect_command(CLI::App& app);
Command add_checkpoint_prune_command(CLI::App& app);
Command add_checkpoint_reshard_command(CLI::App& app);
Command add_checkpoint_verify_command(CLI::App& app);

Command add_data_baseline_command(CLI::App& app);
Command add_data_inspect_command(CLI::App& app);
Command add_data_prepare_command(CLI::App& app);

// Runs the one command of the list that the command line named.
int run_parsed(const std::vector<Command>& commands);

// Values of an option. CLI11's own range lets through what is no number, and numbers beyond 64 bits
// as the largest one.
CLI::Validator whole_number(std::uint64_t min, std::uint64_t max);
CLI::Validator decimal_number(double min, double max);
CLI::Validator not_empty();

// ConfigError in a process that is one of several ranks: `command` runs by itself.
void refuse_ranks(std::string_view command);

// Declares --threads, with the values and the meaning of the key run.threads.
void add_threads(CLI::App& app, int& threads);

// Where a command takes its configuration from: the arguments of load_config().
struct ConfigArguments {
  std::optional<std::filesystem::path> file;
  std::vector<std::string> overrides;

  // Declares --config and --set; this object must outlive the parsing.
  void add_to(CLI::App& app);
};

}  // namespace fsdptrain::tools
