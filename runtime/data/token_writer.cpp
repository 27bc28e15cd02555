#include "runtime/data/token_writer.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace fsdptrain::data {
namespace {

namespace fs = std::filesystem;

// Parts from this size on are on their way to the device while others are made.
constexpr std::size_t kBytesPerSync = std::size_t{1} << 19;
constexpr std::size_t kShardDigits = 5;
constexpr std::string_view kShardEnding = ".bin";

TokenWriter::Options checked(TokenWriter::Options options) {
  check_vocabulary(options.path.native(), options.vocabulary);
  if (options.shard_tokens > 0) {
    const std::vector<fs::path> before = existing_shards(options.path);
    check<ConfigError>(before.empty(),
                       "{}: a shard of an earlier set is there, {} in all: remove them or choose "
                       "another name",
                       before.empty() ? "" : before.front().native(), before.size());
    return options;
  }
  std::error_code unknown;  // creating the file says why
  check<ConfigError>(!fs::is_regular_file(options.path, unknown) ||
                         is_token_file(File::open_for_reading(options.path)),
                     "{}: is there already and no token file, so it is not replaced: move it away, "
                     "or choose another name",
                     options.path.native());
  return options;
}

// NAME- of NAME-00000.bin
std::string shard_prefix(const fs::path& path) {
  return path.stem().native() + "-";
}

}  // namespace

struct TokenWriter::Shard {
  // The last counts for a rest behind the last end of a document.
  std::uint64_t num_documents() const { return num_ends + (num_written > 0 && !is_ended ? 1 : 0); }

  // From the first write on, closed when all is written.
  std::optional<AtomicFile> file;
  // Ends of documents so far.
  std::uint64_t num_ends = 0;
  // The places up to the last that was written, and whether the token there ends a document.
  std::uint64_t num_written = 0;
  bool is_ended = true;
  // The tokens that have reached the file.
  std::uint64_t num_done = 0;
  // By the thread that finishes it.
  bool is_claimed = false;
  bool is_finished = false;
};

TokenWriter::TokenWriter(const Options& options) : options_(checked(options)) {
  shards_.push_back(std::make_unique<Shard>());
  shards_.front()->file.emplace(path_of(0));
}

TokenWriter::~TokenWriter() = default;

fs::path TokenWriter::path_of(std::size_t shard) const {
  if (options_.shard_tokens == 0) {
    return options_.path;
  }
  return options_.path.parent_path() /
         fmt::format("{}{:0{}}{}", shard_prefix(options_.path), shard, kShardDigits, kShardEnding);
}

std::uint64_t TokenWriter::reserve(std::uint64_t num_tokens) {
  const std::uint64_t begin = num_tokens_;
  const std::uint64_t end = begin + num_tokens;
  const std::uint64_t per_shard = options_.shard_tokens;
  const std::uint64_t num_shards = per_shard == 0 || end == 0 ? 1 : (end - 1) / per_shard + 1;
  check<ConfigError>(num_shards <= kLargestShards,
                     "{}: more than {} shards of {} tokens: choose larger ones (--shard-tokens)",
                     options_.path.native(), kLargestShards, per_shard);
  {
    const std::lock_guard lock(mutex_);
    while (shards_.size() < num_shards) {
      shards_.push_back(std::make_unique<Shard>());
    }
  }
  num_tokens_ = end;
  return begin;
}

template <class Token>
void TokenWriter::write_tokens(std::uint64_t begin, std::span<const Token> tokens) {
  const Vocabulary& vocabulary = options_.vocabulary;
  check<DTypeError>(bytes_per_token(vocabulary) == sizeof(Token),
                    "{}: tokens of a vocabulary of {} have {} bytes, got {}",
                    options_.path.native(), vocabulary.size, bytes_per_token(vocabulary),
                    sizeof(Token));
  const std::uint64_t per_shard = options_.shard_tokens == 0
                                      ? std::numeric_limits<std::uint64_t>::max()
                                      : options_.shard_tokens;
  while (!tokens.empty()) {
    const std::uint64_t offset = begin % per_shard;
    const auto part = tokens.first(
        static_cast<std::size_t>(std::min<std::uint64_t>(tokens.size(), per_shard - offset)));
    write_part(begin / per_shard, offset, part);
    begin += part.size();
    tokens = tokens.subspan(part.size());
  }
}

template <class Token>
void TokenWriter::write_part(std::size_t index, std::uint64_t offset,
                             std::span<const Token> tokens) {
  const Vocabulary& vocabulary = options_.vocabulary;
  const std::uint32_t end = vocabulary.end_of_document.value_or(kNoToken);
  Token largest = 0;
  std::uint64_t num_ends = 0;
  for (const Token token : tokens) {
    largest = std::max(largest, token);
    num_ends += token == end ? 1 : 0;
  }
  check<DataError>(
      largest < vocabulary.size, "{}: token {} is outside the vocabulary of {}, at offset {}",
      path_of(index).native(), largest, vocabulary.size,
      offset + static_cast<std::uint64_t>(std::ranges::find(tokens, largest) - tokens.begin()));
  Shard* shard = nullptr;
  {
    const std::lock_guard lock(mutex_);
    shard = shards_[index].get();
    if (!shard->file) {
      shard->file.emplace(path_of(index));
    }
    shard->num_ends += num_ends;
    if (offset + tokens.size() > shard->num_written) {
      shard->num_written = offset + tokens.size();
      shard->is_ended = tokens.back() == end;
    }
  }
  const std::uint64_t place = kTokenHeaderBytes + offset * sizeof(Token);
  shard->file->write_at(place, std::as_bytes(tokens));
  if (tokens.size_bytes() >= kBytesPerSync) {
    shard->file->begin_sync(place, tokens.size_bytes());
  }
  std::vector<Shard*> whole;
  {
    const std::lock_guard lock(mutex_);
    shard->num_done += tokens.size();
    whole = claim_whole(index);
  }
  for (Shard* const done : whole) {
    finish(*done, ShardPlace::Inner);
  }
}

// Whether a shard is the last is known when the next one is: who writes to that finishes both.
std::vector<TokenWriter::Shard*> TokenWriter::claim_whole(std::size_t index) {
  std::vector<Shard*> whole;
  for (std::size_t i = index == 0 ? 0 : index - 1; i <= index && i + 1 < shards_.size(); ++i) {
    Shard& shard = *shards_[i];
    if (!shard.is_claimed && shard.num_done == options_.shard_tokens) {
      shard.is_claimed = true;
      whole.push_back(&shard);
    }
  }
  return whole;
}

void TokenWriter::finish(Shard& shard, ShardPlace place) const {
  shard.file->write_at(0, to_bytes({.vocabulary = options_.vocabulary,
                                    .bytes_per_token = bytes_per_token(options_.vocabulary),
                                    .num_tokens = shard.num_written,
                                    .num_documents = shard.num_documents(),
                                    .shard_place = place}));
  shard.file->close();
  shard.is_finished = true;
}

void TokenWriter::write(std::uint64_t begin, std::span<const std::uint16_t> tokens) {
  write_tokens(begin, tokens);
}

void TokenWriter::write(std::uint64_t begin, std::span<const std::uint32_t> tokens) {
  write_tokens(begin, tokens);
}

void TokenWriter::complete() {
  std::uint64_t num_done = 0;
  for (const auto& shard : shards_) {
    num_done += shard->num_done;
  }
  check(num_done == num_tokens_, "{}: room was reserved for {} tokens, but {} were written",
        options_.path.native(), num_tokens_, num_done);
  for (const auto& shard : shards_) {
    if (!shard->is_finished) {
      const ShardPlace place = shard == shards_.back() ? ShardPlace::Last : ShardPlace::Inner;
      finish(*shard, options_.shard_tokens == 0 ? ShardPlace::None : place);
    }
  }
  is_complete_ = true;
}

void TokenWriter::commit() {
  if (!is_complete_) {
    complete();
  }
  try {
    for (std::size_t left = shards_.size(); left > 0; --left) {
      shards_[left - 1]->file->commit();
    }
  } catch (const Error&) {
    withdraw();
    throw;
  }
}

void TokenWriter::withdraw() {
  // 00000 first: without it, what is left is no set.
  for (const auto& shard : shards_) {
    std::error_code error;
    if (shard->file && shard->file->is_committed() && !fs::remove(shard->file->path(), error)) {
      log_warning("{}: removing the file of an unfinished set failed: {}",
                  shard->file->path().native(), error.message());
    }
  }
}

std::uint64_t TokenWriter::num_documents() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t num_documents = shards_.back()->num_documents();
  for (std::size_t i = 0; i + 1 < shards_.size(); ++i) {
    num_documents += shards_[i]->num_ends;
  }
  return num_documents;
}

std::vector<fs::path> TokenWriter::paths() const {
  const std::lock_guard lock(mutex_);
  std::vector<fs::path> paths;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    paths.push_back(path_of(i));
  }
  return paths;
}

std::vector<fs::path> existing_shards(const fs::path& path) {
  const std::string prefix = shard_prefix(path);
  std::vector<fs::path> shards;
  std::error_code error;
  // A folder that cannot be read is named when the first file is made in it.
  fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (name.size() == prefix.size() + kShardDigits + kShardEnding.size() &&
        name.starts_with(prefix) && name.ends_with(kShardEnding) &&
        std::ranges::all_of(std::string_view(name).substr(prefix.size(), kShardDigits),
                            [](char c) { return c >= '0' && c <= '9'; })) {
      shards.push_back(entry->path());
    }
  }
  std::ranges::sort(shards);
  return shards;
}

}  // namespace fsdptrain::data
