#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/byte_text.h"
#include "runtime/data/fingerprint.h"
#include "runtime/data/token_source.h"
#include "tools/commands.h"
#include "tools/exit_code.h"
#include "tools/progress.h"
#include "tools/stop_signals.h"

namespace fsdptrain::tools {
namespace {

constexpr std::uint64_t kExcerptTokens = 200;

// Readable bytes as they are, the rest as escapes; other tokenizers as numbers.
std::string excerpt(const data::TokenSource& source) {
  std::vector<std::int64_t> tokens(std::min(source.num_tokens(), kExcerptTokens));
  source.read(0, tokens);
  if (source.vocabulary().tokenizer != data::kByteTokenizer) {
    return fmt::format("{}", fmt::join(tokens, " "));
  }
  std::string text;
  for (const std::int64_t token : tokens) {
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

// Every byte of every file is read once, for its hash and for the check of its tokens.
std::vector<data::Fingerprint> check_all(const data::TokenSource& source) {
  std::uint64_t nbytes = 0;
  for (const auto& file : source.files()) {
    nbytes += file->nbytes();
  }
  StopSignals signals;
  Progress progress("inspect", nbytes);
  std::uint64_t done = 0;
  std::vector<data::Fingerprint> fingerprints;
  for (const auto& file : source.files()) {
    std::uint64_t num_ends = 0;
    fingerprints.push_back(data::whole_fingerprint(
        file->open(), [&](std::uint64_t offset, std::span<const std::byte> bytes) {
          // The first part holds the header, and parts end between tokens.
          const std::uint64_t skip = offset == 0 ? data::kTokenHeaderBytes : 0;
          num_ends += file->check_tokens(
              (offset + skip - data::kTokenHeaderBytes) / file->header().bytes_per_token,
              bytes.subspan(skip));
          signals.check_stop();
          progress.update(done += bytes.size());
        }));
    file->check_num_documents(num_ends);
  }
  return fingerprints;
}

void inspect(const std::vector<std::filesystem::path>& paths, bool full) {
  const data::TokenSource source(paths);
  const data::Vocabulary& vocabulary = source.vocabulary();
  fmt::print("file             {}\n", source.name());
  fmt::print("tokenizer        {}\n", vocabulary.tokenizer);
  fmt::print("vocabulary       {}\n", vocabulary.size);
  fmt::print("end of document  {}\n",
             vocabulary.end_of_document ? fmt::format("{}", *vocabulary.end_of_document) : "none");
  fmt::print("bytes per token  {}\n", source.files().front()->header().bytes_per_token);
  fmt::print("tokens           {}\n", source.num_tokens());
  fmt::print("documents        {}\n", source.count_documents());
  fmt::print("begins with      {}\n", excerpt(source));
  std::vector<data::Fingerprint> fingerprints;
  if (full) {
    fingerprints = check_all(source);
  } else {
    for (const auto& file : source.files()) {
      fingerprints.push_back(data::sampled_fingerprint(file->open()));
    }
  }
  for (std::size_t i = 0; i < fingerprints.size(); ++i) {
    const data::TokenFile& file = *source.files()[i];
    fmt::print("fingerprint      {}  {}, {} tokens\n", data::to_string(fingerprints[i]),
               file.path().native(), file.num_tokens());
  }
  if (full) {
    fmt::print("checked          all tokens are in the vocabulary\n");
  }
}

}  // namespace

Command add_data_inspect_command(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("inspect", "Say what token files hold");
  command->footer(
      R"(A folder stands for all *.bin in it; several files and folders are read as one stream.
The fingerprint is the size and a hash: of samples of the file, or with --full of all of it.

Examples:
  fsdptrain data inspect books.tok
  fsdptrain data inspect shards/
  fsdptrain data inspect --full books.tok)");

  struct Arguments {
    std::vector<std::filesystem::path> paths;
    bool full = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("path", arguments->paths, "token files, or folders of such")
      ->required()
      ->type_name("PATH");
  command->add_flag("--full", arguments->full,
                    "check every token against the vocabulary, count the documents again, and hash "
                    "every byte");

  return {command, [arguments] {
            inspect(arguments->paths, arguments->full);
            return static_cast<int>(ExitCode::Done);
          }};
}

}  // namespace fsdptrain::tools
