#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/convert/compare.h"
#include "checkpoint/io/file_system.h"
#include "checkpoint/load/reader.h"
#include "runtime/base/error.h"
#include "tools/checkpoint/describe.h"
#include "tools/checkpoint/locate.h"
#include "tools/commands.h"
#include "tools/config/changes.h"
#include "tools/config/config.h"
#include "tools/exit_code.h"
#include "tools/progress.h"
#include "tools/run/run_progress.h"
#include "tools/stop_signals.h"

namespace fsdptrain::tools {
namespace {

namespace fs = std::filesystem;
using checkpoint::ValueDifference;
using Json = nlohmann::ordered_json;

struct Arguments {
  fs::path a;
  fs::path b;
  bool json = false;
};

struct Differences {
  std::vector<std::string> facts;
  // Of tensors with any, the largest relative to its tensor first.
  std::vector<ValueDifference> values;
  std::size_t num_compared = 0;

  bool none() const { return facts.empty() && values.empty(); }
};

std::vector<ValueDifference> compare_all(checkpoint::CheckpointReader& a,
                                         checkpoint::CheckpointReader& b,
                                         const std::vector<checkpoint::Common>& common) {
  const StopSignals signals;
  Progress progress("diff", totals_of(a.manifest()).nbytes + totals_of(b.manifest()).nbytes);
  std::uint64_t done = 0;
  std::vector<ValueDifference> differences;
  for (const checkpoint::Common& tensor : common) {
    const ValueDifference difference =
        checkpoint::compare_values(a, b, tensor, [&](std::uint64_t nbytes) {
          signals.check_stop();
          progress.update(done += nbytes);
        });
    if (difference.num_different > 0) {
      differences.push_back(difference);
    }
  }
  const auto relative = [](const ValueDifference& of) {
    const double share = of.max_value > 0 ? of.max_difference / of.max_value : of.max_difference;
    return std::isnan(share) ? std::numeric_limits<double>::infinity() : share;
  };
  std::stable_sort(differences.begin(), differences.end(),
                   [&](const ValueDifference& one, const ValueDifference& other) {
                     return relative(one) > relative(other);
                   });
  return differences;
}

// None where it has none that can be read.
std::optional<Config> config_of(const checkpoint::Manifest& manifest) {
  const auto found = manifest.objects.find(kSavedConfig);
  if (found == manifest.objects.end() || found->second.values.size() != 1) {
    return std::nullopt;
  }
  const auto& state = found->second.values.front();
  const auto toml = state.is_object() ? state.find("toml") : state.end();
  if (toml == state.end() || !toml->is_string()) {
    return std::nullopt;
  }
  try {
    return parse_config(toml->get<std::string>(), "the configuration in the checkpoint");
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// Of two runs the configurations always differ, in where they write at least: the keys that decide
// about numbers take the place of the line that says so.
void name_keys(const checkpoint::Manifest& a, const checkpoint::Manifest& b,
               std::vector<std::string>& facts) {
  const auto line = std::ranges::find(facts, fmt::format("object {}: differs", kSavedConfig));
  if (line == facts.end()) {
    return;
  }
  const std::optional<Config> of_a = config_of(a);
  const std::optional<Config> of_b = config_of(b);
  if (!of_a || !of_b) {
    return;
  }
  facts.erase(line);
  for (const ConfigChange& change : numeric_changes(*of_a, *of_b)) {
    facts.push_back(
        fmt::format("{} {}: {} and {}", kSavedConfig, change.key, change.before, change.now));
  }
}

Differences compare(const Arguments& arguments) {
  const auto files = checkpoint::make_real_file_system();
  checkpoint::CheckpointReader a = open_checkpoint(*files, arguments.a);
  checkpoint::CheckpointReader b = open_checkpoint(*files, arguments.b);
  checkpoint::Comparable comparable = checkpoint::match(a.manifest(), b.manifest());
  name_keys(a.manifest(), b.manifest(), comparable.differences);
  std::vector<ValueDifference> values;
  naming_one_before(*files, arguments.a, a, [&] {
    naming_one_before(*files, arguments.b, b,
                      [&] { values = compare_all(a, b, comparable.common); });
  });
  return {.facts = std::move(comparable.differences),
          .values = std::move(values),
          .num_compared = comparable.common.size()};
}

std::string text_of(const Differences& differences) {
  std::string text;
  for (const std::string& fact : differences.facts) {
    text += fact + "\n";
  }
  for (const ValueDifference& value : differences.values) {
    text += fmt::format(
        "{}: {} of {} elements differ, by at most {:.3g}; the largest value is {:.3g}\n",
        value.name, value.num_different, value.numel, value.max_difference, value.max_value);
  }
  const std::size_t num_equal = differences.num_compared - differences.values.size();
  return text + fmt::format("{} of {} tensors are equal bit for bit{}\n", num_equal,
                            differences.num_compared, differences.none() ? ": no difference" : "");
}

Json json_of(const Differences& differences) {
  Json values = Json::array();
  for (const ValueDifference& value : differences.values) {
    // JSON has no number for what is not finite.
    values.push_back({{"name", value.name},
                      {"elements", value.numel},
                      {"different", value.num_different},
                      {"max_difference", value.max_difference},
                      {"max_value", value.max_value}});
  }
  return {{"equal", differences.none()},
          {"compared", differences.num_compared},
          {"differences", differences.facts},
          {"values", values}};
}

}  // namespace

Command add_checkpoint_diff_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("diff", "Compare two checkpoints");
  command->footer(
      R"(Of any numbers of ranks: names, shapes, dtypes, numbers of updates, objects, and every value.
A folder stands for its newest checkpoint that has all its files. Steps, dates and
keys of the configuration that decide about no number, such as run.dir, are not compared.

Exit code: 0 no difference, 1 some (or a failure of the system), 2 one of them cannot be read.

Examples:
  fsdptrain checkpoint diff runs/a runs/b
  fsdptrain checkpoint diff runs/a/checkpoints/step-00000100 runs/b/checkpoints/step-00000100)");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("first", arguments->a, "a checkpoint")->required()->type_name("PATH");
  command->add_option("second", arguments->b, "another")->required()->type_name("PATH");
  command->add_flag("--json", arguments->json, "one JSON object");
  return {command, [arguments] {
            const Differences differences = compare(*arguments);
            fmt::print("{}",
                       arguments->json ? to_line(json_of(differences)) : text_of(differences));
            return static_cast<int>(differences.none() ? ExitCode::Done : ExitCode::Failed);
          }};
}

}  // namespace fsdptrain::tools
