#include "tools/bench/arguments.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/rank_context.h"
#include "tools/bench/library_gemm.h"
#include "tools/commands.h"
#include "tools/config/fields.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

// Unknown keys are load_config()'s.
void refuse_unread(const std::vector<std::string>& overrides, ConfigKeys keys) {
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

}  // namespace

void add_bench_arguments(CLI::App& app, BenchArguments& arguments, const char* rounds_name,
                         int rounds) {
  arguments.rounds = rounds;
  app.add_flag("--json", arguments.json, "print one JSON object instead of the table");
  add_threads(app, arguments.threads);
  app.add_option(rounds_name, arguments.rounds, "how often each thing is timed; medians count")
      ->check(whole_number(5, 1000))
      ->capture_default_str();
}

std::shared_ptr<BenchArguments> add_bench_arguments(CLI::App& app, const char* rounds_name,
                                                    int rounds) {
  const auto arguments = std::make_shared<BenchArguments>();
  add_bench_arguments(app, *arguments, rounds_name, rounds);
  return arguments;
}

void add_model_arguments(CLI::App& app, BenchArguments& arguments) {
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

void add_dtype_argument(CLI::App& app, BenchArguments& arguments) {
  app.add_option("--dtype", arguments.dtype, "train.compute_dtype: float32 or bfloat16")
      ->capture_default_str();
}

Config config_of(const BenchArguments& arguments, ConfigKeys keys) {
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

int run_bench(const BenchArguments& arguments, const std::function<Report()>& bench) {
  RankContext context({.threads = arguments.threads});
  const ContextGuard guard(context);
  if (!has_library_gemm()) {
    log_warning("this build has no oneDNN (FSDPTRAIN_GEMM=eigen): the library's roof is missing");
  }
  print_report(bench(), arguments.json);
  return static_cast<int>(ExitCode::Done);
}

}  // namespace fsdptrain::tools
