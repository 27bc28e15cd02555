#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "comm/init/run_rank.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/quoted.h"
#include "runtime/data/byte_text.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/generate/byte_prompt.h"
#include "tools/generate/keep_gathered.h"
#include "tools/generate/sampler.h"
#include "tools/model/trained_model.h"
#include "tools/standard_output.h"

namespace fsdptrain::tools {
namespace {

struct Arguments {
  TrainedModelArguments model;
  std::optional<std::string> prompt;
  std::vector<std::int64_t> prompt_ids;
  std::string output;
  int threads = 0;
  SamplingOptions sampling{.num_tokens = 200, .temperature = 0.8, .seed = 1};
};

// "1,22,333"
std::vector<std::int64_t> parse_ids(const std::string& text) {
  std::vector<std::int64_t> ids;
  const char* const end = text.data() + text.size();
  for (const char* begin = text.data();; ++begin) {
    std::int32_t id = -1;
    const auto [rest, error] = std::from_chars(begin, end, id);
    check<ConfigError>(error == std::errc() && id >= 0 && (rest == end || *rest == ','),
                       "--prompt-ids: must be whole numbers from 0 to {} with one comma between "
                       "two, got {}: number {} is none",
                       std::numeric_limits<std::int32_t>::max(), in_quotes(text), ids.size() + 1);
    ids.push_back(id);
    begin = rest;
    if (begin == end) {
      return ids;
    }
  }
}

// Tokens in and text out, by the tokenizer of the weights: bytes, or numbers for all others.
class Dialogue {
 public:
  Dialogue(const Arguments& arguments, const TrainedModel& trained)
      : is_text_(trained.info.vocabulary.tokenizer == data::kByteTokenizer) {
    if (arguments.prompt) {
      check<ConfigError>(
          is_text_,
          "--prompt: text can be given to weights of the tokenizer \"{}\" only, these "
          "are of \"{}\": give --prompt-ids",
          data::kByteTokenizer, trained.info.vocabulary.tokenizer);
      prompt_ = byte_tokens(*arguments.prompt);
    } else {
      prompt_ = arguments.prompt_ids;
    }
    check<ConfigError>(!prompt_.empty(), "--prompt: must have at least one byte");
    const std::int64_t vocab_size = trained.model->vocab_size();
    for (const std::int64_t token : prompt_) {
      check<ConfigError>(token < vocab_size, "--prompt-ids: {} is no token: the vocabulary has {}",
                         token, vocab_size);
    }
  }

  const std::vector<std::int64_t>& prompt() const { return prompt_; }

  std::string shown(std::int64_t token) {
    const bool first = std::exchange(is_first_, false);
    return is_text_ ? text_of_byte_token(token) : fmt::format("{}{}", first ? "" : " ", token);
  }

 private:
  bool is_text_;
  bool is_first_ = true;
  std::vector<std::int64_t> prompt_;
};

void write_text(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.commit();
}

int generate(const Arguments& arguments, comm::World& world) {
  const TrainedModel trained = arguments.model.load(world.group());
  std::error_code no_output;
  check<ConfigError>(!std::filesystem::equivalent(arguments.output, trained.path, no_output),
                     "--output {}: is the file of the weights: choose another place",
                     arguments.output);
  Dialogue dialogue(arguments, trained);
  const bool writes = world.rank() == 0;
  if (writes && !arguments.output.empty()) {
    const AtomicFile refused_before_the_work(arguments.output);
  }
  std::string text;
  const auto add = [&](std::int64_t token) {
    const std::string piece = dialogue.shown(token);
    text += piece;
    if (writes && arguments.output.empty()) {
      print_now(piece);
    }
  };
  std::ranges::for_each(dialogue.prompt(), add);
  const auto gathered = keep_gathered(*trained.sharded, world);
  sample(*trained.model, dialogue.prompt(), arguments.sampling, [&](std::int64_t token) {
    add(token);
    return true;
  });
  if (!writes) {
    return static_cast<int>(ExitCode::Done);
  }
  if (arguments.output.empty()) {
    print_now("\n");
  } else {
    write_text(arguments.output, text);
  }
  return static_cast<int>(ExitCode::Done);
}

int run(const Arguments& arguments) {
  return comm::run_rank({.threads = arguments.threads},
                        [&](comm::Job& job) { return generate(arguments, job.world()); });
}

}  // namespace

Command add_generate_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("generate", "Continue a text with a trained model");
  command->footer(
      R"(Weights of byte tokens take and give text; all others numbers of tokens. The whole text is
computed again for every token, so a long one takes its time. It runs on the CPU, whatever
run.device says; under a launcher the ranks share out the weights and step together.

Examples:
  fsdptrain generate --run runs/quickstart --prompt "In the beginning" --tokens 400
  fsdptrain generate --run runs/quickstart --prompt "And" --temperature 1 --top-p 0.9 --seed 7
  fsdptrain generate --weights weights.safetensors --prompt-ids 464,3290,318 --temperature 0)");
  const auto arguments = std::make_shared<Arguments>();
  arguments->model.add_to(*command);
  CLI::Option_group* const prompt = command->add_option_group("prompt");
  prompt->add_option("--prompt", arguments->prompt, "text to continue, at least one byte");
  prompt
      ->add_option_function<std::string>(
          "--prompt-ids",
          [arguments](const std::string& text) { arguments->prompt_ids = parse_ids(text); },
          "tokens to continue, as numbers with commas between them")
      ->type_name("IDS");
  prompt->require_option(1);
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
  command
      ->add_option("--top-p", arguments->sampling.top_p,
                   "only the fewest of the likeliest tokens that have this probability together; "
                   "1: all")
      ->check(decimal_number(1e-9, 1))
      ->capture_default_str();
  command->add_option("--seed", arguments->sampling.seed, "the same seed gives the same text")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  command->add_option("--output", arguments->output, "write to this file instead of the terminal")
      ->check(not_empty())
      ->type_name("FILE");
  add_threads(*command, arguments->threads);
  return {command, [arguments] { return run(*arguments); }};
}

}  // namespace fsdptrain::tools
