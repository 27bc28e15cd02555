#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/rank_context.h"
#include "runtime/data/byte_text.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/generate/byte_prompt.h"
#include "tools/generate/sampler.h"
#include "tools/standard_output.h"
#include "tools/train/from_config.h"
#include "tools/train/run_folder.h"
#include "tools/train/weights.h"

namespace fsdptrain::tools {
namespace {

struct Arguments {
  std::string run;
  std::string prompt;
  std::string output;
  int threads = 0;
  SamplingOptions sampling{.num_tokens = 200, .temperature = 0.8, .top_k = 0, .seed = 1};
};

void check_finite(const RunFolder& folder, const nn::FlatParameters& parameters) {
  for (const auto& parameter : parameters.named()) {
    const auto values = parameter.values.values<float>();
    const auto bad =
        std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
    check(bad == values.end(),
          "{}: {} holds {}: the file is damaged, or the training went wrong: train again",
          folder.weights().string(), parameter.name, bad == values.end() ? 0 : *bad);
  }
}

int generate(const Arguments& arguments) {
  const RunFolder folder = RunFolder::open(arguments.run);
  const WeightsInfo info = read_weights_info(folder.weights());
  check<DataError>(info.tokenizer == data::kByteTokenizer,
                   "{}: generate knows the tokenizer \"{}\" only, these weights are of \"{}\"",
                   folder.weights().string(), data::kByteTokenizer, info.tokenizer);
  RankContext context({.threads = arguments.threads});
  const ContextGuard guard(context);
  const auto model = build_model(info.config);
  nn::FlatParameters parameters(*model, {.compute_dtype = compute_dtype(info.config.train)});
  load_weights(folder.weights(), parameters);
  check_finite(folder, parameters);

  std::string text = arguments.prompt;
  const bool show = arguments.output.empty();
  if (show) {
    print_now(text);
  }
  sample(*model, byte_tokens(arguments.prompt), arguments.sampling, [&](std::int64_t token) {
    const std::string piece = text_of_byte_token(token);
    text += piece;
    if (show) {
      print_now(piece);
    }
  });
  if (show) {
    print_now("\n");
    return static_cast<int>(ExitCode::Done);
  }
  AtomicFile file(arguments.output);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.commit();
  return static_cast<int>(ExitCode::Done);
}

}  // namespace

Command add_generate_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("generate", "Continue a text with a trained model");
  command->footer(
      R"(Example:
  fsdptrain generate --run runs/quickstart --prompt "In the beginning" --tokens 400)");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("--run", arguments->run, "folder of a run of fsdptrain train")
      ->required()
      ->check(not_empty())
      ->type_name("DIR");
  command->add_option("--prompt", arguments->prompt, "text to continue, at least one byte")
      ->required();
  command->add_option("--tokens", arguments->sampling.num_tokens, "tokens to add")
      ->check(whole_number(1, std::uint64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--temperature", arguments->sampling.temperature,
                   "1: the model's own distribution; lower: safer; 0: always the likeliest")
      ->check(decimal_number(0, 100))
      ->capture_default_str();
  command->add_option("--top-k", arguments->sampling.top_k, "only the k likeliest tokens; 0: all")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command->add_option("--seed", arguments->sampling.seed, "the same seed gives the same text")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  command->add_option("--output", arguments->output, "write to this file instead of the terminal")
      ->check(not_empty())
      ->type_name("FILE");
  add_threads(*command, arguments->threads);
  return {command, [arguments] { return generate(*arguments); }};
}

}  // namespace fsdptrain::tools
