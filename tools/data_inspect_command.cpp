#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "runtime/data/byte_text.h"
#include "runtime/data/token_file.h"
#include "tools/commands.h"
#include "tools/exit_code.h"

namespace fsdptrain::tools {
namespace {

constexpr std::uint64_t kExcerptTokens = 200;

// Readable bytes as they are, the rest as escapes; other tokenizers as numbers.
std::string excerpt(const data::TokenFile& file) {
  const auto tokens = file.checked_tokens(0, std::min(file.num_tokens(), kExcerptTokens));
  if (file.header().tokenizer != data::kByteTokenizer) {
    return fmt::format("{}", fmt::join(tokens, " "));
  }
  std::string text;
  for (const std::uint16_t token : tokens) {
    if (token == data::kByteEndOfDocument) {
      text += "<end of document>";
    } else if (token == '\n') {
      text += "\\n";
    } else if (token >= 0x20 && token < 0x7f) {
      text += static_cast<char>(token);
    } else {
      text += fmt::format("\\x{:02x}", token);
    }
  }
  return text;
}

void inspect(const std::string& path, bool full) {
  const data::TokenFile file(path);
  const data::TokenFileHeader& header = file.header();
  fmt::print("file             {}\n", path);
  fmt::print("tokenizer        {}\n", header.tokenizer);
  fmt::print("vocabulary       {}\n", header.vocab_size);
  fmt::print("end of document  {}\n",
             header.end_of_document ? fmt::format("{}", *header.end_of_document) : "none");
  fmt::print("tokens           {}\n", header.num_tokens);
  fmt::print("documents        {}\n", header.num_documents);
  fmt::print("begins with      {}\n", excerpt(file));
  if (full) {
    file.checked_tokens(0, file.num_tokens());
    fmt::print("checked          all tokens are in the vocabulary\n");
  }
}

}  // namespace

Command add_data_inspect_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("inspect", "Say what a token file holds");
  command->footer(R"(Examples:
  fsdptrain data inspect books.tok
  fsdptrain data inspect --full books.tok)");

  struct Arguments {
    std::string file;
    bool full = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("file", arguments->file, "token file")->required()->type_name("FILE");
  command->add_flag("--full", arguments->full, "check every token against the vocabulary");

  return {command, [arguments] {
            inspect(arguments->file, arguments->full);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
