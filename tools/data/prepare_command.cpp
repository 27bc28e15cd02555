#include <filesystem>
#include <fmt/core.h>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/data/byte_block.h"
#include "runtime/data/byte_text.h"
#include "runtime/data/prepare.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/progress.h"
#include "tools/stop_signals.h"

namespace fsdptrain::tools {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<fs::path> texts;
  std::string format;
  data::PrepareOptions options;
  int threads = 0;
};

// Shards have names of their own, which TokenWriter protects.
void check_outputs(const std::vector<data::TextFile>& texts, const data::PrepareOptions& options) {
  std::vector<fs::path> outputs{options.output};
  if (options.validation_fraction > 0) {
    outputs.push_back(data::validation_path(options.output));
  }
  std::error_code no_output;
  for (const fs::path& output : outputs) {
    for (const data::TextFile& text : texts) {
      check<ConfigError>(!fs::equivalent(text.path, output, no_output),
                         "--output {}: is part of the text: choose another place", output.native());
    }
  }
}

void print_set(const char* verb, const data::PreparedSet& set) {
  const std::string more =
      set.files.size() == 1 ? "" : fmt::format(" to {}", set.files.back().filename().native());
  fmt::print("{} {}{}: {} tokens, {} documents, vocabulary {}\n", verb, set.files.front().native(),
             more, set.num_tokens, set.num_documents, data::kByteVocabSize);
}

void prepare(const Arguments& arguments) {
  std::optional<data::TextFormat> format;
  if (!arguments.format.empty()) {
    format = arguments.format == "jsonl" ? data::TextFormat::Jsonl : data::TextFormat::Text;
  }
  const auto texts = data::list_texts(arguments.texts, format);
  check_outputs(texts, arguments.options);
  // Before the threads, so that they hold the signals back too.
  StopSignals signals;
  RankContext context({.threads = arguments.threads});
  data::Prepared prepared;
  {
    Progress progress("prepare", data::ByteBlocks(texts).nbytes());
    prepared =
        data::prepare_bytes(texts, arguments.options, context.pool(), [&](std::uint64_t done) {
          signals.check_stop();
          progress.update(done);
        });
  }
  print_set("wrote", prepared.training);
  if (prepared.validation) {
    print_set("for validation", *prepared.validation);
  }
}

void add_arguments(CLI::App& command, Arguments& arguments) {
  data::PrepareOptions& options = arguments.options;
  command.add_option("--text", arguments.texts, "text or JSONL files, or folders of such")
      ->required()
      ->check(not_empty())
      ->type_name("PATH");
  command
      .add_option("--output", options.output,
                  "token file to write (docs/formats.md); missing folders are made")
      ->required()
      ->check(not_empty())
      ->type_name("FILE");
  command
      .add_option("--format", arguments.format,
                  "take every file for text or for jsonl, whatever its name")
      ->check(CLI::IsMember({"text", "jsonl"}));
  command.add_option("--jsonl-field", options.jsonl_field, "field of a line that holds its text")
      ->capture_default_str();
  command
      .add_option("--shard-tokens", options.shard_tokens,
                  "write shards of so many tokens, at most 10,000: NAME-00000.bin, ...; 0: one "
                  "file")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command
      .add_option("--validation-fraction", options.validation_fraction,
                  "part of the documents, chosen by a hash of their number, that goes to "
                  "validation/FILE beside the output")
      ->check(decimal_number(0, 1))
      ->capture_default_str();
  command.add_option("--seed", options.seed, "of that choice")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  add_threads(command, arguments.threads);
}

}  // namespace

Command add_data_prepare_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("prepare", "Turn text into files of byte tokens");
  command->footer(
      R"(Every byte is a token; token 256 ends each document. A file is one document; in a folder
every file at any depth is one, in the order of their paths. Of a file that ends with .jsonl,
every line is a JSON object and its field "text" a document. The output does not depend on the
number of threads, and appears under its name only when it is complete; a token file there is
replaced, any other file refused. A byte order mark in front of a file is no text. A validation
fraction keeps whole documents apart: train on the one output, validate on the other.

Examples:
  fsdptrain data prepare --text shakespeare.txt --output shakespeare.tok
  fsdptrain data prepare --text books/ --output books.tok
  fsdptrain data prepare --text web.jsonl --output web.bin --validation-fraction 0.01
  fsdptrain data prepare --text a.jsonl b.jsonl --jsonl-field body --output data/web.bin \
      --shard-tokens 1000000000)");
  const auto arguments = std::make_shared<Arguments>();
  add_arguments(*command, *arguments);
  return {command, [arguments] {
            prepare(*arguments);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
