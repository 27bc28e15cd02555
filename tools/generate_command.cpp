#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/rank_context.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/generate/sampler.h"
#include "tools/train/build_model.h"
#include "tools/train/run_folder.h"

namespace fsdptrain::tools {
namespace {

struct Arguments {
  std::string run;
  std::string prompt;
  std::string output;
  SamplingOptions sampling{.num_tokens = 200, .temperature = 0.8, .top_k = 0, .seed = 1};
};

// Byte tokens of a text; the token behind the bytes marks the end of a document.
std::vector<std::int64_t> byte_tokens(const std::string& text) {
  std::vector<std::int64_t> tokens;
  for (const char letter : text) {
    tokens.push_back(static_cast<unsigned char>(letter));
  }
  return tokens;
}

int generate(const Arguments& arguments) {
  const RunFolder folder = RunFolder::open(arguments.run);
  const Config config = config_of_weights(folder.weights());
  RankContext context({.threads = static_cast<int>(config.run.threads)});
  const ContextGuard guard(context);
  const auto model = build_model(config.model);
  check<ConfigError>(model->vocab_size() >= 257,
                     "generate: prints models over bytes, of 257 tokens or more, got {}",
                     model->vocab_size());
  nn::FlatParameters parameters(*model, {.compute_dtype = compute_dtype(config.train)});
  load_weights(folder.weights(), parameters);

  std::string text = arguments.prompt;
  const bool show = arguments.output.empty();
  const auto put = [&](const std::string& piece) {
    std::fputs(piece.c_str(), stdout);
    std::fflush(stdout);
  };
  if (show) {
    put(text);
  }
  sample(*model, byte_tokens(arguments.prompt), arguments.sampling, [&](std::int64_t token) {
    const std::string piece = token < 256 ? std::string(1, static_cast<char>(token)) : "\n\n";
    text += piece;
    if (show) {
      put(piece);
    }
  });
  if (show) {
    put("\n");
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
      ->type_name("DIR");
  command->add_option("--prompt", arguments->prompt, "text to continue, at least one byte")
      ->required();
  command->add_option("--tokens", arguments->sampling.num_tokens, "tokens to add")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--temperature", arguments->sampling.temperature,
                   "1: the model's own distribution; lower: safer; 0: always the likeliest")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", arguments->sampling.top_k, "only the k likeliest tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--seed", arguments->sampling.seed, "the same seed gives the same text")
      ->capture_default_str();
  command->add_option("--output", arguments->output, "write to this file instead of the terminal")
      ->type_name("FILE");
  return {command, [arguments] { return generate(*arguments); }};
}

}  // namespace fsdptrain::tools
