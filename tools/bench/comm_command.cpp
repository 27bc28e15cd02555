#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <unistd.h>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tools/bench/bench.h"
#include "tools/bench/comm_rank.h"
#include "tools/commands.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

constexpr std::uint64_t kMostRanks = 64;
constexpr std::uint64_t kMostMegabytes = 1 << 14;

struct Arguments {
  bool json = false;
  int ranks = 2;
  int rounds = 15;
  std::vector<std::int64_t> megabytes{1, 16, 64};
};

int run(const Arguments& arguments) {
  std::vector<std::int64_t> sizes = arguments.megabytes;
  std::ranges::sort(sizes);
  check<ConfigError>(std::ranges::adjacent_find(sizes) == sizes.end(),
                     "--megabytes: a size is there twice: {}", fmt::join(arguments.megabytes, ","));
  // One compute thread per rank.
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  print_report(bench_comm(arguments.ranks, sizes, arguments.rounds), arguments.json);
  return static_cast<int>(ExitCode::Done);
}

}  // namespace

Command add_bench_comm_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "comm", "Time collectives of processes beside a copy or a sum of the same bytes");
  command->footer(
      R"(Ranks are processes with one thread, rank r on the r-th processor, then twice as many on the same
processors, and as many on gloo over loopback. Rates count the bytes that a rank receives. The
floor, in turns with each all_gather, is a memcpy of as many bytes by all ranks at once, and with
each reduce_scatter a sum of as many parts, each in memory of its own. "allocated" is memory that
the others read where it lies, "plain" any other. Takes 48 times the largest --megabytes of memory,
more with the square of --ranks.

Examples:
  fsdptrain bench comm
  fsdptrain bench comm --megabytes 16 --rounds 50
  fsdptrain bench comm --ranks 4 --megabytes 1,256 --json)");
  const auto arguments = std::make_shared<Arguments>();
  command->add_flag("--json", arguments->json, "print one JSON object instead of the table");
  command->add_option("--ranks", arguments->ranks, "processes")
      ->check(whole_number(2, kMostRanks))
      ->capture_default_str();
  command
      ->add_option("--megabytes", arguments->megabytes,
                   "of one rank's shard, 2^20 bytes to one; several with commas")
      ->delimiter(',')
      ->check(whole_number(1, kMostMegabytes))
      ->capture_default_str();
  command
      ->add_option("--rounds", arguments->rounds,
                   "how often each thing has its turn; medians count")
      ->check(whole_number(5, 1000))
      ->capture_default_str();
  return {command, [arguments] { return run(*arguments); }};
}

Command add_bench_comm_rank_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("comm-rank", "One rank of bench comm, which starts it");
  // Hidden: it talks with its parent alone.
  command->group("");
  const auto options = std::make_shared<CommRankOptions>();
  options->socket = STDIN_FILENO;
  command->add_option("--rank", options->rank)->required();
  command->add_option("--ranks", options->num_ranks)->required();
  command->add_option("--segment", options->segment, "a descriptor, or -1")->required();
  command->add_option("--parent", options->parent, "a process")->required();
  command->add_option("--store", options->store, "a socket, without --segment");
  command->add_option("--core", options->core)->required();
  command->add_option("--spins", options->spins)->required();
  command->add_option("--bytes", options->max_nbytes)->required();
  return {
      command, [options] {
        RankContext context({.threads = 1, .log_prefix = fmt::format("[rank {}] ", options->rank)});
        const ContextGuard guard(context);
        serve_comm_rank(*options);
        return static_cast<int>(ExitCode::Done);
      }};
}

}  // namespace fsdptrain::tools
