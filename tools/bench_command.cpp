#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/rank_context.h"
#include "tools/bench/bench.h"
#include "tools/bench/library_gemm.h"
#include "tools/bench/temporary_folder.h"
#include "tools/commands.h"
#include "tools/config.h"
#include "tools/config_fields.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

// What every benchmark takes; some take the model too.
struct Arguments {
  bool json = false;
  int threads = 0;
  int rounds = 0;
  std::string model = "gpt2-124m";
  std::int64_t batch = 1;
  std::int64_t seq_len = 1024;
  std::string dtype = "float32";
  std::vector<std::string> overrides;
  std::string compare = "none";
  bool serve = false;
};

std::shared_ptr<Arguments> add_arguments(CLI::App& app, const char* rounds_name, int rounds) {
  const auto arguments = std::make_shared<Arguments>();
  arguments->rounds = rounds;
  app.add_flag("--json", arguments->json, "print one JSON object instead of the table");
  add_threads(app, arguments->threads);
  app.add_option(rounds_name, arguments->rounds, "how often each thing is timed; medians count")
      ->check(whole_number(5, 1000))
      ->capture_default_str();
  return arguments;
}

void add_model_arguments(CLI::App& app, Arguments& arguments) {
  app.add_option("--model", arguments.model, "model.name of a configuration")
      ->capture_default_str();
  app.add_option("--batch", arguments.batch, "sequences of a step")->capture_default_str();
  app.add_option("--seq-len", arguments.seq_len, "tokens of a sequence")->capture_default_str();
  app.add_option("--set", arguments.overrides,
                 "a key of a configuration that this benchmark reads; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->expected(1)
      ->take_all();
}

void add_dtype_argument(CLI::App& app, Arguments& arguments) {
  app.add_option("--dtype", arguments.dtype, "train.compute_dtype: float32 or bfloat16")
      ->capture_default_str();
}

// Keys "section.key", and "section." for all of a section. The batch and the threads have
// arguments of their own.
using Keys = std::span<const std::string_view>;

constexpr std::string_view kGemmKeys[] = {
    "model.name",      "model.num_layers",  "model.num_heads", "model.num_kv_heads",
    "model.embed_dim", "model.head_dim",    "model.ffn_dim",   "model.vocab_size",
    "model.bias",      "model.max_seq_len", "train.seq_len"};
constexpr std::string_view kOpsKeys[] = {
    "model.name",        "model.num_heads", "model.embed_dim",    "model.vocab_size",
    "model.max_seq_len", "train.seq_len",   "train.compute_dtype"};
constexpr std::string_view kStepKeys[] = {"model.name",
                                          "model.num_layers",
                                          "model.num_heads",
                                          "model.num_kv_heads",
                                          "model.embed_dim",
                                          "model.head_dim",
                                          "model.ffn_dim",
                                          "model.vocab_size",
                                          "model.max_seq_len",
                                          "model.window",
                                          "model.norm_eps",
                                          "model.dropout",
                                          "model.bias",
                                          "model.tie_embeddings",
                                          "model.rope_theta",
                                          "model.rope_scaling",
                                          "model.rope_factor",
                                          "model.rope_low_freq_factor",
                                          "model.rope_high_freq_factor",
                                          "model.rope_original_seq_len",
                                          "optimizer.",
                                          "run.seed",
                                          "train.seq_len",
                                          "train.grad_clip",
                                          "train.recompute",
                                          "train.compute_dtype"};

// ConfigError for an override that would change nothing. Unknown keys are load_config()'s.
void refuse_unread(const std::vector<std::string>& overrides, Keys keys) {
  for (const std::string& text : overrides) {
    const std::string key = text.substr(0, text.find('='));
    const bool is_read = std::ranges::any_of(keys, [&key](std::string_view read) {
      return read.ends_with('.') ? key.starts_with(read) : key == read;
    });
    check<ConfigError>(is_read || find_field(key) == nullptr,
                       "--set: {}: this benchmark does not read {}, only {}; sequences and threads "
                       "are --batch and --threads",
                       text, key, fmt::join(keys, ", "));
  }
}

// The configuration that the arguments stand for, checked as a file is.
Config config_of(const Arguments& arguments, Keys keys) {
  refuse_unread(arguments.overrides, keys);
  std::vector<std::string> settings{
      fmt::format("model.name=\"{}\"", arguments.model),
      fmt::format("train.seq_len={}", arguments.seq_len),
      fmt::format("train.micro_batch={}", arguments.batch),
      fmt::format("train.global_batch={}", arguments.batch),
      fmt::format("train.compute_dtype=\"{}\"", arguments.dtype),
  };
  settings.insert(settings.end(), arguments.overrides.begin(), arguments.overrides.end());
  return load_config(std::nullopt, settings);
}

int run_bench(const Arguments& arguments, const std::function<Report()>& bench) {
  RankContext context({.threads = arguments.threads});
  const ContextGuard guard(context);
  if (!has_library_gemm()) {
    log_warning("this build has no oneDNN (FSDPTRAIN_GEMM=eigen): the library's roof is missing");
  }
  print_report(bench(), arguments.json);
  return static_cast<int>(ExitCode::Done);
}

StepComparison comparison_of(const std::string& name) {
  return name == "dtype"   ? StepComparison::Dtype
         : name == "batch" ? StepComparison::Batch
                           : StepComparison::None;
}

Report run_step(const Arguments& arguments) {
  const Config config = config_of(arguments, kStepKeys);
  if (arguments.serve) {
    return serve_steps(config);
  }
  const StepComparison comparison = comparison_of(arguments.compare);
  return comparison == StepComparison::None
             ? bench_step(config, arguments.rounds)
             : bench_step_comparison(config, comparison, arguments.rounds);
}

}  // namespace

Command add_bench_step_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("step", "Time whole training steps and say where the time goes");
  command->footer(
      R"(Real steps on random tokens: forward, backward and AdamW. The products of its linears and
head, by oneDNN on threads of its own, run in turns with the steps: their speed is the roof, and
what the step takes beyond it is the gap, listed by part.

Examples:
  fsdptrain bench step
  fsdptrain bench step --batch 4 --seq-len 256 --dtype bfloat16 --threads 2 --steps 10
  fsdptrain bench step --compare dtype
  fsdptrain bench step --model gpt2 --set model.num_layers=2 --seq-len 128 --json)");
  const auto arguments = add_arguments(*command, "--steps", 5);
  add_model_arguments(*command, *arguments);
  add_dtype_argument(*command, *arguments);
  command
      ->add_option("--compare", arguments->compare,
                   "instead: float32 and bfloat16 in turns (dtype), or 1 and 8 sequences (batch)")
      ->check(CLI::IsMember({"none", "dtype", "batch"}))
      ->capture_default_str();
  command->add_flag("--serve", arguments->serve,
                    "instead: after the line \"ready\", one step for each line of standard input, "
                    "and a line with its seconds (tools/bench/compare_pytorch)");
  return {command,
          [arguments] { return run_bench(*arguments, [&] { return run_step(*arguments); }); }};
}

Command add_bench_data_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "data", "Time preparation of data and loading beside what they cannot save");
  command->footer(
      R"(Preparation beside reading its input and writing and syncing as many bytes as its output has;
the loader beside a training step of the quickstart's model. Choose a folder on the disk that is
meant: one in memory makes another figure.

Examples:
  fsdptrain bench data
  fsdptrain bench data --folder /mnt/data --megabytes 512 --json)");
  const auto arguments = add_arguments(*command, "--rounds", 7);
  const auto megabytes = std::make_shared<std::int64_t>(64);
  const auto folder = std::make_shared<std::filesystem::path>();
  command->add_option("--megabytes", *megabytes, "of each input, 2^20 bytes to one")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--folder", *folder,
                   "where inputs and outputs are made and removed again; TMPDIR, else /tmp")
      ->type_name("PATH");
  return {command, [arguments, megabytes, folder] {
            return run_bench(*arguments, [&] {
              return bench_data(folder->empty() ? temporary_folder() : *folder, *megabytes,
                                arguments->rounds);
            });
          }};
}

Command add_bench_gemm_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("gemm", "Time our matrix products beside oneDNN's on threads of its own");
  command->footer(
      R"(Every product of a training step, forward, dx = dy W and dw = dy^T x, with the shapes and the
accumulation that the step uses; ours and the library's in turns, both as shares of the peak of
multiply-and-add. "step" sums over all of them.

Examples:
  fsdptrain bench gemm
  fsdptrain bench gemm --model gpt2-350m --seq-len 512 --threads 1
  fsdptrain bench gemm --json > gemm.json)");
  const auto arguments = add_arguments(*command, "--rounds", 7);
  add_model_arguments(*command, *arguments);
  return {command, [arguments] {
            return run_bench(*arguments, [&] {
              return bench_gemm(config_of(*arguments, kGemmKeys), arguments->rounds);
            });
          }};
}

Command add_bench_memory_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "memory", "Time what moves memory, AdamW among it, beside a copy of as many bytes");
  command->footer(
      R"(Rates count each byte that must be read or written once: 28 for a parameter of AdamW.
Choose arrays larger than all caches.

Examples:
  fsdptrain bench memory
  fsdptrain bench memory --megabytes 512 --threads 1 --json)");
  const auto arguments = add_arguments(*command, "--rounds", 7);
  const auto megabytes = std::make_shared<std::int64_t>(256);
  command->add_option("--megabytes", *megabytes, "of each float32 array, 2^20 bytes to one")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  return {command, [arguments, megabytes] {
            return run_bench(*arguments, [&] {
              return bench_memory((*megabytes << 20) / 4, arguments->rounds);
            });
          }};
}

Command add_bench_ops_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "ops", "Time all that is no product: attention, norms, activations, losses, threads");
  command->footer(
      R"(At the sizes of a model. Attention is a share of the peak of multiply-and-add; the others are
shares of a copy of as many bytes. pool_region is what it costs to start and end an empty piece
of work on all threads.

Examples:
  fsdptrain bench ops
  fsdptrain bench ops --dtype bfloat16 --batch 4 --seq-len 256
  fsdptrain bench ops --threads 1 --json)");
  const auto arguments = add_arguments(*command, "--rounds", 7);
  add_model_arguments(*command, *arguments);
  add_dtype_argument(*command, *arguments);
  return {command, [arguments] {
            return run_bench(*arguments, [&] {
              return bench_ops(config_of(*arguments, kOpsKeys), arguments->rounds);
            });
          }};
}

Command add_bench_launch_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "launch", "Time start and end of ranks that do nothing beside bare processes");
  command->footer(
      R"(The ranks are processes of `true`, started by fsdptrain launch, and, in turns with them, by
this program alone. "overhead" is what the launcher adds: its own start, pipes, shared memory, a store.

Examples:
  fsdptrain bench launch
  fsdptrain bench launch --ranks 64 --json)");
  const auto arguments = add_arguments(*command, "--rounds", 15);
  const auto num_ranks = std::make_shared<int>(4);
  command->add_option("--ranks", *num_ranks, "processes")
      ->check(whole_number(1, 256))
      ->capture_default_str();
  return {command, [arguments, num_ranks] {
            return run_bench(*arguments,
                             [&] { return bench_launch(*num_ranks, arguments->rounds); });
          }};
}

Command add_bench_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("bench", "Measure speed against the roofs of this machine");
  command->require_subcommand(1);
  command->footer(
      R"(Every benchmark measures the roofs in the same run: the numbers of another run, or
of another machine, say nothing about this one. Exit code 0 when it ran, whatever the figures.
docs/performance.md says how to read them.

Examples:
  fsdptrain bench step
  fsdptrain bench gemm --json)");
  const std::vector<Command> commands{
      add_bench_step_command(*command),      add_bench_gemm_command(*command),
      add_bench_data_command(*command),      add_bench_memory_command(*command),
      add_bench_ops_command(*command),       add_bench_comm_command(*command),
      add_bench_comm_rank_command(*command), add_bench_launch_command(*command),
  };
  return {command, [commands] { return run_parsed(commands); }};
}

}  // namespace fsdptrain::tools
