#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/init/run_rank.h"
#include "runtime/base/error.h"
#include "tools/bench/arguments.h"
#include "tools/bench/bench.h"
#include "tools/bench/rank_launch.h"
#include "tools/bench/step_ranks.h"
#include "tools/commands.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

constexpr int kRounds = 5;
constexpr int kRoundsOfRanks = 21;
constexpr std::uint64_t kMostRanks = 256;

struct Arguments : BenchArguments {
  std::string compare = "none";
  bool serve = false;
  // 0: this process alone.
  int ranks = 0;
  bool no_comm = false;
  // Of a rank that this command has started.
  std::string rank_streams;
};

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

// One rank has nothing to share out.
std::vector<std::string_view> keys_of(const Arguments& arguments) {
  std::vector<std::string_view> keys(std::begin(kStepKeys), std::end(kStepKeys));
  if (arguments.ranks > 0) {
    keys.emplace_back("shard.");
  }
  return keys;
}

StepComparison comparison_of(const std::string& name) {
  return name == "dtype"   ? StepComparison::Dtype
         : name == "batch" ? StepComparison::Batch
                           : StepComparison::None;
}

Report run_step(const Arguments& arguments, const Config& config) {
  if (arguments.serve) {
    return serve_steps(config);
  }
  const StepComparison comparison = comparison_of(arguments.compare);
  return comparison == StepComparison::None
             ? bench_step(config, arguments.rounds)
             : bench_step_comparison(config, comparison, arguments.rounds);
}

// This command as one of its ranks has it.
std::vector<std::string> words_of_rank(const Arguments& arguments) {
  std::vector<std::string> words{"bench",          "step",
                                 "--ranks",        std::to_string(arguments.ranks),
                                 "--threads",      std::to_string(arguments.threads),
                                 "--steps",        std::to_string(arguments.rounds),
                                 "--model",        arguments.model,
                                 "--batch",        std::to_string(arguments.batch),
                                 "--seq-len",      std::to_string(arguments.seq_len),
                                 "--dtype",        arguments.dtype,
                                 "--rank-streams", to_text(inherit_streams())};
  for (const std::string& text : arguments.overrides) {
    words.insert(words.end(), {"--set", text});
  }
  const auto add_flag = [&words](bool is_set, const char* name) {
    if (is_set) {
      words.emplace_back(name);
    }
  };
  add_flag(arguments.json, "--json");
  add_flag(arguments.no_comm, "--no-comm");
  add_flag(arguments.serve, "--serve");
  return words;
}

int run_as_rank(const Arguments& arguments, const Config& config, int rank) {
  if (!arguments.rank_streams.empty()) {
    take_streams(parse_rank_streams(arguments.rank_streams), rank);
  }
  comm::JobOptions options{.threads = std::max(arguments.threads, 1)};
  if (arguments.serve) {
    // Whoever is served may be away for long.
    options.world.timeout = std::chrono::hours(24);
  }
  return comm::run_rank(options, [&](comm::Job& job) {
    const Report report =
        arguments.serve
            ? serve_rank_steps(config, job)
            : bench_step_ranks(config, {.rounds = arguments.rounds, .no_comm = arguments.no_comm},
                               job);
    if (rank == 0) {
      print_report(report, arguments.json);
    }
    return static_cast<int>(ExitCode::Done);
  });
}

int run_ranks(const Arguments& arguments, const Config& config) {
  check<ConfigError>(arguments.compare == "none",
                     "--compare {}: compares steps of one process; leave --ranks out",
                     arguments.compare);
  check<ConfigError>(!arguments.serve || !arguments.no_comm,
                     "--no-comm: is reported, not served; leave --serve out");
  const comm::Membership membership = comm::read_environment(comm::environment_variable);
  if (membership.size > 1) {
    check<ConfigError>(membership.size == arguments.ranks,
                       "--ranks {}: this process is {}; leave the launcher out, ranks are started "
                       "here",
                       arguments.ranks, comm::to_string(membership));
    return run_as_rank(arguments, config, membership.rank);
  }
  become_launcher(arguments.ranks, words_of_rank(arguments));
}

int run(const Arguments& arguments) {
  check<ConfigError>(arguments.ranks > 0 || !arguments.no_comm,
                     "--no-comm: a step of one process has no communication; give --ranks");
  const Config config = config_of(arguments, keys_of(arguments));
  return arguments.ranks > 0 ? run_ranks(arguments, config)
                             : run_bench(arguments, [&] { return run_step(arguments, config); });
}

void add_rank_options(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--ranks", arguments.ranks,
                  "instead: so many processes, one thread each where --threads is 0, step together "
                  "on one sharded model; --batch and --seq-len are of one rank, and --steps is 21")
      ->check(whole_number(2, kMostRanks))
      ->type_name("N");
  command.add_flag("--no-comm", arguments.no_comm,
                   "of --ranks only the step whose operations between ranks do nothing");
  command.add_option("--rank-streams", arguments.rank_streams)->group("");
}

}  // namespace

Command add_bench_step_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("step", "Time whole training steps and say where the time goes");
  command->footer(
      R"(Real steps on random tokens: forward, backward and AdamW. The products of its linears and
head, by oneDNN on threads of its own, run in turns with the steps: their speed is the roof, and
what the step takes beyond it is the gap, listed by part.

With --ranks N, N processes started by fsdptrain launch step together on one sharded model. In turns
with that go the same step whose operations between ranks do nothing: what it lacks is all that
communication takes, and its roof is a memcpy of the bytes that a rank receives, by all ranks at
once; and a step of one process that has all the threads and tokens. --set takes shard.* then, too.

Examples:
  fsdptrain bench step
  fsdptrain bench step --batch 4 --seq-len 256 --dtype bfloat16 --threads 2 --steps 10
  fsdptrain bench step --compare dtype
  fsdptrain bench step --model gpt2 --set model.num_layers=2 --seq-len 128 --json
  fsdptrain bench step --ranks 2 --seq-len 128
  fsdptrain bench step --ranks 2 --no-comm --set shard.reshard_after_forward=no)");
  const auto arguments = std::make_shared<Arguments>();
  add_bench_arguments(*command, *arguments, "--steps", kRounds);
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
  add_rank_options(*command, *arguments);
  return {command, [command, arguments] {
            if (arguments->ranks > 0 && command->count("--steps") == 0) {
              arguments->rounds = kRoundsOfRanks;
            }
            return run(*arguments);
          }};
}

}  // namespace fsdptrain::tools
