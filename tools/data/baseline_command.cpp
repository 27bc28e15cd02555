#include <filesystem>
#include <fmt/core.h>
#include <limits>
#include <memory>
#include <string>

#include "runtime/data/ngram.h"
#include "runtime/data/token_dataset.h"
#include "runtime/data/token_source.h"
#include "tools/commands.h"
#include "tools/config/config.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

struct Arguments {
  std::filesystem::path tokens;
  double validation_fraction = DataConfig{}.validation_fraction;
  std::int64_t seq_len = TrainConfig{}.seq_len;
};

void print_baseline(const Arguments& arguments) {
  const auto source = std::make_shared<data::TokenSource>(arguments.tokens);
  const auto split = data::split_tokens(source->num_tokens(), arguments.validation_fraction);
  const data::TokenDataset validation(source, arguments.seq_len, split.validation);
  const data::TrigramScore score = data::score_trigram(*source, split.train, validation);
  fmt::print("trigram_nats_per_byte  {:.6f}\n", score.nats_per_target);
  fmt::print("validation_targets     {}\n", score.num_targets);
  fmt::print("training_tokens        {}\n", split.train.size());
}

}  // namespace

Command add_data_baseline_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("baseline", "Score a trigram model: the loss that training must beat");
  command->footer(
      R"(Counts the training part, smooths by Witten and Bell, and prints the mean loss over the
targets that training validates on. Use the validation fraction and seq_len of the run.

Examples:
  fsdptrain data baseline --tokens books.tok
  fsdptrain data baseline --tokens books.tok --validation-fraction 0.05 --seq-len 1024)");

  const auto arguments = std::make_shared<Arguments>();
  command->add_option("--tokens", arguments->tokens, "token file of bytes, or folder of such")
      ->required()
      ->type_name("PATH");
  command
      ->add_option("--validation-fraction", arguments->validation_fraction,
                   "part of the tokens, at their end, that is scored")
      ->check(decimal_number(0, 1))
      ->capture_default_str();
  command->add_option("--seq-len", arguments->seq_len, "tokens per sequence of the run")
      ->check(whole_number(1, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();

  return {command, [arguments] {
            print_baseline(*arguments);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
