#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/init/run_rank.h"
#include "runtime/base/error.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/model/trained_model.h"
#include "tools/progress.h"
#include "tools/standard_output.h"
#include "tools/stop_signals.h"
#include "tools/train/datasets.h"
#include "tools/train/evaluation.h"

namespace fsdptrain::tools {
namespace {

struct Arguments {
  TrainedModelArguments model;
  std::vector<std::string> tokens;
  std::int64_t batches = -1;
  bool json = false;
  int threads = 0;
};

using DatasetList = std::vector<std::shared_ptr<const data::TokenDataset>>;

void check_tokens_of_weights(const data::TokenSource& source, const TrainedModel& trained) {
  check<DataError>(source.vocabulary() == trained.info.vocabulary,
                   "{}: holds tokens of another vocabulary than {} was trained on: {}, not {}: "
                   "prepare the text with the tokenizer of the weights",
                   source.name(), trained.path.string(), data::to_string(source.vocabulary()),
                   data::to_string(trained.info.vocabulary));
}

DatasetList open_tokens(const Arguments& arguments, const TrainedModel& trained) {
  const Config& config = trained.info.config;
  // First: that they do not fit the model says less.
  for (const std::string& path : arguments.tokens.empty() ? config.data.tokens : arguments.tokens) {
    check_tokens_of_weights(data::TokenSource(path), trained);
  }
  if (arguments.tokens.empty()) {
    const Datasets datasets = open_datasets(config);
    check<ConfigError>(
        !datasets.validation.empty(),
        "--tokens: must be given: the run behind {} held nothing back for validation",
        trained.path.string());
    return datasets.validation;
  }
  return open_validation(config, arguments.tokens);
}

std::string as_text(const LossTotals& totals) {
  std::string text = fmt::format(
      "targets        {}\n"
      "loss           {:.4f} nats per token\n"
      "perplexity     {:.4f}\n",
      totals.num_targets, totals.mean(), totals.perplexity());
  if (totals.num_bytes > 0) {
    text += fmt::format("bits per byte  {:.4f}\n", totals.bits_per_byte());
  }
  return text;
}

std::string as_json(const std::string& weights, const LossTotals& totals) {
  nlohmann::ordered_json json{{"weights", weights},
                              {"targets", totals.num_targets},
                              {"loss", totals.mean()},
                              {"perplexity", totals.perplexity()}};
  if (totals.num_bytes > 0) {
    json["bits_per_byte"] = totals.bits_per_byte();
  }
  return json.dump() + "\n";
}

int evaluate_weights(const Arguments& arguments, const StopSignals& signals, comm::World& world) {
  const TrainedModel trained = arguments.model.load(world.group());
  const Config& config = trained.info.config;
  const DatasetList datasets = open_tokens(arguments, trained);
  EvaluationOptions options{
      .batch = config.train.micro_batch,
      .max_batches = arguments.batches < 0 ? config.eval.batches : arguments.batches};
  const std::uint64_t num_samples = num_evaluated(datasets, options);
  std::optional<Progress> progress;
  if (world.rank() == 0) {
    progress.emplace("eval", num_samples, ProgressUnit::Turns);
  }
  std::uint64_t done = 0;
  options.progress = [&](const LossTotals&) {
    signals.check_stop();
    // Each rank has one forward at a time.
    done = std::min(done + static_cast<std::uint64_t>(options.batch * world.size()), num_samples);
    if (progress) {
      progress->update(done);
    }
  };
  const LossTotals totals = evaluate(*trained.model, datasets, options, world.control());
  progress.reset();
  check<DataError>(totals.num_targets > 0,
                   "eval: no token has a target: each of them ends a document, got {} samples",
                   num_samples);
  check(std::isfinite(totals.nats),
        "eval: the loss of {} is {}: its weights overflow: train again, with a lower optimizer.lr",
        trained.path.string(), totals.nats);
  if (world.rank() == 0) {
    print_now(arguments.json
                  ? as_json(trained.path.string(), totals)
                  : fmt::format("weights        {}\n", trained.path.string()) + as_text(totals));
  }
  return static_cast<int>(ExitCode::Done);
}

int run(const Arguments& arguments) {
  // Before all other threads, so that they hold the signals back too.
  const StopSignals signals;
  return comm::run_rank(
      {.threads = arguments.threads, .check_stop = [&signals] { signals.check_stop(); }},
      [&](comm::Job& job) { return evaluate_weights(arguments, signals, job.world()); });
}

}  // namespace

Command add_eval_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("eval", "Measure the loss of trained weights");
  command->footer(
      R"(Prints the mean loss over the tokens in nats, its exponential (the perplexity), and, for byte
tokens, bits per byte of text. Without --tokens it takes the tokens that the run held back for
validation, and gives the loss of the last validation in its metrics. It runs on the CPU, whatever
run.device says; under a launcher the ranks share out the weights and the tokens.

Examples:
  fsdptrain eval --run runs/quickstart
  fsdptrain eval --run runs/quickstart --ema --json
  fsdptrain launch --nproc-per-node 2 -- eval --run runs/quickstart
  fsdptrain eval --weights runs/quickstart/weights.safetensors --tokens other.bin)");
  const auto arguments = std::make_shared<Arguments>();
  arguments->model.add_to(*command);
  command
      ->add_option("--tokens", arguments->tokens,
                   "token files, or folders of them, of which all tokens are taken")
      ->check(not_empty())
      ->type_name("PATH");
  command
      ->add_option("--batches", arguments->batches,
                   "micro-batches at most, 0: all; else eval.batches of the run")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->type_name("N");
  command->add_flag("--json", arguments->json, "one JSON object instead of a table");
  add_threads(*command, arguments->threads);
  return {command, [arguments] { return run(*arguments); }};
}

}  // namespace fsdptrain::tools
