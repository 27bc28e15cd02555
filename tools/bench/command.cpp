#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/arguments.h"
#include "tools/bench/bench.h"
#include "tools/bench/temporary_folder.h"
#include "tools/commands.h"

namespace fsdptrain::tools {
namespace {

constexpr std::string_view kGemmKeys[] = {
    "model.name",      "model.num_layers",  "model.num_heads", "model.num_kv_heads",
    "model.embed_dim", "model.head_dim",    "model.ffn_dim",   "model.vocab_size",
    "model.bias",      "model.max_seq_len", "train.seq_len"};
constexpr std::string_view kOpsKeys[] = {
    "model.name",        "model.num_heads", "model.embed_dim",    "model.vocab_size",
    "model.max_seq_len", "train.seq_len",   "train.compute_dtype"};

}  // namespace

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
  const auto arguments = add_bench_arguments(*command, "--rounds", 7);
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
  const auto arguments = add_bench_arguments(*command, "--rounds", 7);
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
  const auto arguments = add_bench_arguments(*command, "--rounds", 7);
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
  const auto arguments = add_bench_arguments(*command, "--rounds", 7);
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
  const auto arguments = add_bench_arguments(*command, "--rounds", 15);
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
      add_bench_step_command(*command),   add_bench_gemm_command(*command),
      add_bench_data_command(*command),   add_bench_memory_command(*command),
      add_bench_ops_command(*command),    add_bench_checkpoint_command(*command),
      add_bench_comm_command(*command),   add_bench_comm_rank_command(*command),
      add_bench_launch_command(*command),
  };
  return {command, [commands] { return run_parsed(commands); }};
}

}  // namespace fsdptrain::tools
