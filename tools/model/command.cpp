#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/meta/meta_ranks.h"
#include "runtime/base/rank_context.h"
#include "tools/commands.h"
#include "tools/config/config.h"
#include "tools/exit_code.h"
#include "tools/model/summary.h"
#include "tools/train/flops.h"

namespace fsdptrain::tools {
namespace {

struct Totals {
  std::int64_t parameters = 0;
  std::int64_t trained = 0;
};

Totals totals_of(const std::vector<ParameterRow>& rows) {
  Totals totals;
  for (const ParameterRow& row : rows) {
    totals.parameters += row.num_parameters();
    totals.trained += row.trained ? row.num_parameters() : 0;
  }
  return totals;
}

std::string training_of(const ParameterRow& row) {
  if (!row.trained) {
    return "frozen";
  }
  return (row.decay ? "decay" : "no decay") +
         (row.lr_scale == 1 ? "" : fmt::format(", lr x {}", row.lr_scale));
}

// Right-aligned but for the first and the last column.
void print_table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t column = 0; column < line.size(); ++column) {
      widths[column] = std::max(widths[column], line[column].size());
    }
  }
  for (const auto& line : lines) {
    std::string text = fmt::format("{:<{}}", line.front(), widths.front());
    for (std::size_t column = 1; column + 1 < line.size(); ++column) {
      text += fmt::format("  {:>{}}", line[column], widths[column]);
    }
    fmt::print("{}  {}\n", text, line.back());
  }
}

std::string as_size(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  constexpr double kMebi = 1024.0 * 1024.0;
  return bytes < 1024 * 1024          ? fmt::format("{:.2f} KiB", size / 1024)
         : bytes < 1024 * 1024 * 1024 ? fmt::format("{:.2f} MiB", size / kMebi)
                                      : fmt::format("{:.2f} GiB", size / (1024 * kMebi));
}

void print_summary(const Config& config, const std::vector<ParameterRow>& rows,
                   const MemoryCounters& memory) {
  std::vector<std::vector<std::string>> lines{{"name", "shape", "parameters", "dtype", "training"}};
  for (const ParameterRow& row : rows) {
    lines.push_back({row.name,
                     row.count == 1 ? fmt::format("{}", row.shape)
                                    : fmt::format("{} x {}", row.count, row.shape),
                     fmt::format("{}", row.num_parameters()), std::string(name_of(row.dtype)),
                     training_of(row)});
  }
  print_table(lines);
  const Totals totals = totals_of(rows);
  fmt::print("\nparameters       {} ({} trained, {} frozen)\n", totals.parameters, totals.trained,
             totals.parameters - totals.trained);
  fmt::print("FLOPs per token  {:.6g}: {}, seq_len {}\n\n", flops_per_token(config),
             kFlopsConvention, config.train.seq_len);
  RankContext& context = current_context();
  fmt::print(
      "peak memory of a training step of {} x {} tokens, {}, recompute {}, isa {}, {} "
      "threads:\n",
      config.train.micro_batch, config.train.seq_len, config.train.compute_dtype,
      config.train.recompute, name_of(context.isa()), context.pool().threads());
  for (std::size_t category = 0; category < kNumMemoryCategories; ++category) {
    if (memory.peak[category] > 0) {
      fmt::print("  {:<13}  {:>14}\n", name_of(static_cast<MemoryCategory>(category)),
                 as_size(memory.peak[category]));
    }
  }
  fmt::print("  {:<13}  {:>14}\n", "at once", as_size(memory.peak_total));
}

void print_json(const Config& config, const std::vector<ParameterRow>& rows,
                const MemoryCounters& memory) {
  using Json = nlohmann::ordered_json;
  Json parameters = Json::array();
  for (const ParameterRow& row : rows) {
    Json shape = Json::array();
    for (int dim = 0; dim < row.shape.dims(); ++dim) {
      shape.push_back(row.shape[dim]);
    }
    parameters.push_back({{"name", row.name},
                          {"count", row.count},
                          {"shape", shape},
                          {"parameters", row.num_parameters()},
                          {"dtype", name_of(row.dtype)},
                          {"trained", row.trained},
                          {"decay", row.decay},
                          {"lr_scale", row.lr_scale}});
  }
  Json bytes = Json::object();
  for (std::size_t category = 0; category < kNumMemoryCategories; ++category) {
    bytes[std::string(name_of(static_cast<MemoryCategory>(category)))] = memory.peak[category];
  }
  RankContext& context = current_context();
  const Totals totals = totals_of(rows);
  const Json object{{"model", config.model.name},
                    {"parameters", totals.parameters},
                    {"trained", totals.trained},
                    {"frozen", totals.parameters - totals.trained},
                    {"flops_per_token", flops_per_token(config)},
                    {"flops_convention", kFlopsConvention},
                    {"memory",
                     {{"micro_batch", config.train.micro_batch},
                      {"seq_len", config.train.seq_len},
                      {"isa", name_of(context.isa())},
                      {"threads", context.pool().threads()},
                      {"peak_bytes", bytes},
                      {"peak_bytes_at_once", memory.peak_total}}},
                    {"rows", parameters}};
  fmt::print("{}\n", object.dump());
}

}  // namespace

Command add_model_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "model", "Say what a configuration builds, and what a step of its training takes");
  command->footer(
      R"(Lists every parameter by the name that [[rules]] match, with blocks that are alike in one line;
then the operations per token, and the memory of a step by category. The step is run on a device
without memory, so models of any size are answered at once.

Examples:
  fsdptrain model --config configs/llama3-70b.toml
  fsdptrain model --set model.name=gpt2-124m --set train.recompute=full
  fsdptrain model --config configs/quickstart.toml --all
  fsdptrain model --config configs/llama-10m-bytes.toml --json)");

  struct Arguments {
    ConfigArguments config;
    bool all = false;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  arguments->config.add_to(*command);
  command->add_flag("--all", arguments->all, "one line per parameter");
  command->add_flag("--json", arguments->json, "print one JSON object instead");

  return {command, [arguments] {
            const Config config = load_config(arguments->config.file, arguments->config.overrides);
            RankContext context({.threads = static_cast<int>(config.run.threads)});
            const ContextGuard guard(context);
            const auto rows = parameter_rows(config, !arguments->all);
            const MemoryCounters memory = step_memory(config, comm::MetaRanks(0, 1).group());
            (arguments->json ? print_json : print_summary)(config, rows, memory);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
