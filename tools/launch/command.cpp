#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/processors.h"
#include "tools/commands.h"
#include "tools/launch/launch.h"
#include "tools/launch/words.h"

namespace fsdptrain::tools {
namespace {

constexpr const char* kFooter =
    R"(usage: fsdptrain launch [OPTIONS] [--] PROGRAM [ARGUMENTS]

PROGRAM is a command of fsdptrain behind --, or any program. Each rank is a process of it, with the
environment that torchrun gives (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...), with
processors of its own where there are enough, and with nothing on standard input.

Lines of ranks come out behind "[rank R] ", standard output to standard output, standard error to
standard error. With --log-dir, they go to FOLDER/<job>/rank-R.out and rank-R.err as well.

A rank that fails ends the job: the others are told at once, get SIGTERM, and 5 s later SIGKILL. The
report names the first rank that failed and how, its last lines, and where all ranks were. SIGINT
(Ctrl-C) and SIGTERM go to all ranks, which have --shutdown-timeout to end; a second Ctrl-C ends
them at once; ranks that had to be killed are named. SIGUSR2 prints where each rank is, now.

All that ranks have started ends with the job, daemons with a session of their own, too. Where the
launcher itself is killed, a keeper beside it ends the ranks and what came of them; it cannot find
what has left the rank's process group, lost its parent and emptied its environment.

Exit codes: 0 all ranks are done; 1 a rank failed (its own with --propagate-exit-code); 2 a wrong
command line, or a program that cannot be started; 75 ranks left with 75, their state is saved: start
again; 128 + n stopped by signal n.

Examples:
  fsdptrain launch --nproc-per-node 2 -- train --config configs/quickstart.toml
  fsdptrain launch --nproc-per-node auto --log-dir logs -- train --config run.toml
  fsdptrain launch --nproc-per-node 4 --log-dir logs --redirect -- ./my_trainer --steps 100
  fsdptrain launch --standalone --nproc_per_node 2 python3 train.py    as from torchrun
  kill -USR2 PID-OF-THE-LAUNCHER    where is each rank?

docs/torchrun-map.md has torchrun's options and variables beside these.)";

struct Arguments {
  std::string num_ranks = "1";
  std::string log_dir;
  std::string tee;
  std::string redirect;
  std::string shown_ranks;
  double shutdown_timeout = 30;
  bool standalone = false;
  bool propagate_exit_code = false;
  std::string bind = "processors";
  LaunchOptions options;
};

// An option of torchrun that there is none of here, and why.
struct Refused {
  const char* name;
  // The one value that changes nothing; empty: none.
  const char* accepted;
  const char* why;
};

constexpr const char* kOneNode = "not yet: one node, no restarts";
constexpr const char* kOfPython = "the program is any executable, and it is started as it is";
constexpr Refused kRefused[] = {
    {"--nnodes", "1", kOneNode},
    {"--node-rank", "0", kOneNode},
    {"--max-restarts", "0", kOneNode},
    {"--rdzv-backend", "", kOneNode},
    {"--rdzv-endpoint", "", kOneNode},
    {"--rdzv-id", "", kOneNode},
    {"--rdzv-conf", "", kOneNode},
    {"--local-addr", "", kOneNode},
    {"--start-method", "", kOfPython},
    {"--numa-binding", "", "see --bind"},
    {"--event-log-handler", "", "there are no events; see --log-dir"},
    {"--logs-specs", "", "see --log-dir"},
    {"--duplicate-stdout-filters", "", "see --local-ranks-filter"},
    {"--duplicate-stderr-filters", "", "see --local-ranks-filter"},
    {"--signals-to-handle", "",
     "SIGHUP, SIGINT, SIGQUIT and SIGTERM stop the job, SIGUSR1 is passed on"},
};
constexpr Refused kRefusedFlags[] = {
    {"-m,--module", "", "put the interpreter in front: -- python3 -m MODULE"},
    {"--run-path", "", "put the interpreter in front: -- python3 SCRIPT"},
    {"--virtual-local-rank", "", "each rank chooses its GPU by LOCAL_RANK"},
};

// "--nproc-per-node" is PET_NPROC_PER_NODE in the environment.
std::string variable_of(std::string name) {
  std::string variable = "PET";
  for (const char letter : name.substr(1)) {
    variable += letter == '-' ? '_' : static_cast<char>(std::toupper(letter));
  }
  return variable;
}

void add_refused(CLI::App& app) {
  // Not by the parser: it does not name options that --help does not show.
  const auto refuse = [](const Refused& refused) {
    fail<ConfigError>("{}: {} (docs/torchrun-map.md)", refused.name, refused.why);
  };
  for (const Refused& refused : kRefused) {
    app.add_option(refused.name)
        ->group("")
        ->check([=](const std::string& value) {
          const bool changes_nothing =
              value == refused.accepted || (value == "1:1" && refused.accepted == std::string("1"));
          if (value.empty() || !changes_nothing) {
            refuse(refused);
          }
          return std::string();
        })
        ->envname(variable_of(refused.name));
  }
  for (const Refused& refused : kRefusedFlags) {
    app.add_flag_callback(refused.name, [=] { refuse(refused); })->group("");
  }
  // Ours does nothing by a clock of its own that these would change, and starts any program as it
  // is.
  app.add_option("--monitor-interval")->group("");
  app.add_flag("--no-python")->group("");
}

void add_output_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--log-dir", arguments.log_dir, "folder for what the ranks print, and for reports")
      ->type_name("FOLDER")
      ->envname(variable_of("--log-dir"));
  app.add_option("-t,--tee", arguments.tee,
                 "to the console and to files: 1 standard output, 2 standard error, 3 both (as "
                 "without a value), 0 none; or of single ranks, 0:3,1:2")
      ->type_name("[STREAMS]")
      ->envname(variable_of("--tee"));
  app.add_option("-r,--redirect,--redirects", arguments.redirect, "the same, to files alone")
      ->type_name("[STREAMS]")
      ->envname(variable_of("--redirects"));
  app.add_option("--local-ranks-filter", arguments.shown_ranks,
                 "the only ranks on the console, as in 0,3")
      ->type_name("RANKS")
      ->envname(variable_of("--local-ranks-filter"));
}

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--nproc-per-node", arguments.num_ranks,
                 "ranks: a number, gpu or cpu for as many as there are, or auto: GPUs where there "
                 "are any, else processors")
      ->type_name("N|auto")
      ->envname(variable_of("--nproc-per-node"))
      ->capture_default_str();
  add_output_options(app, arguments);
  app.add_option("--shutdown-timeout", arguments.shutdown_timeout,
                 "seconds for the ranks to end after SIGINT or SIGTERM, then SIGKILL")
      ->check(decimal_number(0, 1e6))
      ->type_name("S")
      ->envname("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
      ->capture_default_str();
  app.add_flag("--propagate-exit-code", arguments.propagate_exit_code,
               "end with the exit code of the first rank that failed, 128 + n for signal n");
  app.add_option("--bind", arguments.bind,
                 "processors: each rank on its own, where there are as many; none: anywhere")
      ->check(CLI::IsMember({"processors", "none"}))
      ->capture_default_str();
  app.add_flag("--standalone", arguments.standalone, "one node, as always: from torchrun")
      ->envname(variable_of("--standalone"));
  app.add_option("--role", arguments.options.role, "ROLE_NAME of the ranks")
      ->envname(variable_of("--role"))
      ->capture_default_str();
  app.add_option("--master-addr", arguments.options.master_addr,
                 "MASTER_ADDR, for programs that meet there; ours do not")
      ->envname(variable_of("--master-addr"))
      ->capture_default_str();
  app.add_option("--master-port", arguments.options.master_port,
                 "MASTER_PORT, for the same programs; 0: one that is free")
      ->check(whole_number(0, 65535))
      ->envname(variable_of("--master-port"))
      ->capture_default_str();
}

LaunchOptions options_of(const Arguments& arguments, const LaunchWords& words) {
  LaunchOptions options = arguments.options;
  options.program = words.program;
  options.num_ranks = parse_num_ranks(arguments.num_ranks,
                                      num_visible_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES")),
                                      num_processors());
  if (!arguments.log_dir.empty()) {
    options.log_dir = arguments.log_dir;
  }
  if (!arguments.tee.empty()) {
    options.tee = StreamChoice::parse("--tee", arguments.tee);
  }
  if (!arguments.redirect.empty()) {
    options.redirect = StreamChoice::parse("--redirect", arguments.redirect);
  }
  if (!arguments.shown_ranks.empty()) {
    options.shown_ranks = parse_ranks("--local-ranks-filter", arguments.shown_ranks);
  }
  options.shutdown_timeout = std::chrono::duration_cast<comm::Nanoseconds>(
      std::chrono::duration<double>(arguments.shutdown_timeout));
  options.propagate_exit_code = arguments.propagate_exit_code;
  options.binds_cores = arguments.bind == "processors";
  return options;
}

bool is_own_command(const CLI::App& app, const std::string& word) {
  return !app.get_subcommands(
                 [&word](const CLI::App* command) { return command->get_name() == word; })
              .empty();
}

// By its name, for those who look at processes; a program that was replaced has none.
std::string own_program() {
  const std::filesystem::path link = "/proc/self/exe";
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink(link, error);
  return !error && std::filesystem::exists(path, error) ? path.native() : link.native();
}

}  // namespace

Command add_launch_command(CLI::App& app, const LaunchWords& words) {
  CLI::App* const command =
      app.add_subcommand("launch", "Start ranks on this host and see them to their end");
  command->footer(kFooter);
  const auto arguments = std::make_shared<Arguments>();
  add_options(*command, *arguments);
  add_refused(*command);
  return {command, [arguments, &words, &app] {
            LaunchOptions options = options_of(*arguments, words);
            if (words.has_mark && !options.program.empty() &&
                is_own_command(app, options.program.front())) {
              options.program.insert(options.program.begin(), own_program());
            }
            return launch(options);
          }};
}

}  // namespace fsdptrain::tools
