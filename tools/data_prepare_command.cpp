#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "runtime/data/byte_text.h"
#include "runtime/data/token_writer.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/progress.h"
#include "tools/stop_signals.h"

namespace fsdptrain::tools {
namespace {

namespace fs = std::filesystem;

void prepare(const fs::path& text, const fs::path& output) {
  const auto documents = data::list_documents(text);
  std::error_code no_output;
  for (const fs::path& document : documents) {
    check<ConfigError>(!fs::equivalent(document, output, no_output),
                       "--output {}: is part of the text: choose a place outside {}",
                       output.native(), text.native());
  }
  StopSignals signals;
  Progress progress("prepare", data::total_bytes(documents));
  data::TokenWriter writer({output, data::byte_vocabulary()});
  data::append_byte_tokens(documents, writer, [&](std::uint64_t done) {
    signals.check_stop();
    progress.update(done);
  });
  writer.commit();
  fmt::print("wrote {}: {} tokens, {} documents, vocabulary {}\n", output.native(),
             writer.num_tokens(), writer.num_documents(), data::kByteVocabSize);
}

}  // namespace

Command add_data_prepare_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("prepare", "Turn text into a file of byte tokens");
  command->footer(
      R"(Every byte is a token; token 256 ends each document. A file is one document; in a
folder every file at any depth is one, in the order of their paths. The output appears
under its name only when it is complete.

Examples:
  fsdptrain data prepare --text shakespeare.txt --output shakespeare.tok
  fsdptrain data prepare --text books/ --output books.tok)");

  struct Arguments {
    std::string text;
    std::string output;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("--text", arguments->text, "text file, or folder of text files")
      ->required()
      ->check(not_empty())
      ->type_name("PATH");
  command->add_option("--output", arguments->output, "token file to write (docs/formats.md)")
      ->required()
      ->check(not_empty())
      ->type_name("FILE");

  return {command, [arguments] {
            prepare(arguments->text, arguments->output);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
