#include "runtime/data/token_header.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kTokenizerBytes = 32;

// The bytes before the zeros, as they lie in the file.
struct RawHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t bytes_per_token;
  std::uint64_t num_tokens;
  std::uint32_t vocab_size;
  std::uint32_t end_of_document;
  std::uint64_t num_documents;
  std::array<char, kTokenizerBytes> tokenizer;
  std::uint32_t shard_place;
  std::array<std::byte, 4> reserved;
};
static_assert(sizeof(RawHeader) == 80);
constexpr std::size_t kReservedOffset = offsetof(RawHeader, reserved);

bool is_printable(char c) {
  return c > ' ' && c <= '~';
}

// That the bytes are of a token file that this version can read.
void check_kind(const std::string& file, const RawHeader& raw) {
  const std::string_view magic(raw.magic.data(), raw.magic.size());
  check<DataError>(magic == kTokenMagic,
                   "{}: not a token file: it must begin with {}, got {}: make it with "
                   "fsdptrain data prepare",
                   file, kTokenMagic, in_quotes(magic));
  check<DataError>(raw.version == kVersion, "{}: the version must be {}, got {}", file, kVersion,
                   raw.version);
  check<DataError>(raw.bytes_per_token == 2 || raw.bytes_per_token == 4,
                   "{}: the bytes per token must be 2 or 4, got {}", file, raw.bytes_per_token);
  check<DataError>(raw.shard_place <= static_cast<std::uint32_t>(ShardPlace::Last),
                   "{}: the place in a set of shards must be 0, 1 or 2, got {}", file,
                   raw.shard_place);
}

void check_counts(const std::string& file, const TokenFileHeader& header,
                  std::uint64_t file_bytes) {
  const Vocabulary& vocabulary = header.vocabulary;
  check_vocabulary(file, vocabulary);
  check<DataError>(header.bytes_per_token >= bytes_per_token(vocabulary),
                   "{}: the vocabulary size must be 1 to {} at {} bytes per token, got {}", file,
                   kLargestNarrowVocabulary, header.bytes_per_token, vocabulary.size);
  check<DataError>(header.num_documents <= header.num_tokens,
                   "{}: {} documents do not fit {} tokens", file, header.num_documents,
                   header.num_tokens);
  check<DataError>(header.num_documents > 0 || header.num_tokens == 0,
                   "{}: {} tokens must be of at least one document, got 0", file,
                   header.num_tokens);
  const std::uint64_t token_bytes = file_bytes - kTokenHeaderBytes;
  check<DataError>(token_bytes % header.bytes_per_token == 0 &&
                       token_bytes / header.bytes_per_token == header.num_tokens,
                   "{}: the header counts {} tokens of {} bytes, but {} bytes follow it: the file "
                   "is damaged or was cut short",
                   file, header.num_tokens, header.bytes_per_token, token_bytes);
}

}  // namespace

std::string to_string(const Vocabulary& vocabulary) {
  return fmt::format(
      "tokenizer {}, {} tokens, end of document {}", vocabulary.tokenizer, vocabulary.size,
      vocabulary.end_of_document ? fmt::format("{}", *vocabulary.end_of_document) : "none");
}

void check_vocabulary(const std::string& file, const Vocabulary& vocabulary) {
  check<DataError>(vocabulary.size >= 1 && vocabulary.size <= kLargestVocabulary,
                   "{}: the vocabulary size must be 1 to {}, got {}", file, kLargestVocabulary,
                   vocabulary.size);
  check<DataError>(!vocabulary.end_of_document || *vocabulary.end_of_document < vocabulary.size,
                   "{}: the end-of-document token must be below the vocabulary size {}, got {}",
                   file, vocabulary.size, vocabulary.end_of_document.value_or(kNoToken));
  check<DataError>(!vocabulary.tokenizer.empty() &&
                       vocabulary.tokenizer.size() <= kTokenizerBytes &&
                       std::ranges::all_of(vocabulary.tokenizer, is_printable),
                   "{}: the name of the tokenizer must be 1 to {} printable characters, got {}",
                   file, kTokenizerBytes, in_quotes(vocabulary.tokenizer));
}

void check_same_vocabulary(const std::string& first, const Vocabulary& vocabulary,
                           const std::string& other, const Vocabulary& other_vocabulary) {
  check<DataError>(vocabulary == other_vocabulary,
                   "{} and {}: files that are read together must have one vocabulary, got {} and "
                   "{}: prepare them with the same tokenizer",
                   first, other, to_string(vocabulary), to_string(other_vocabulary));
}

bool is_token_file(const File& file) {
  std::array<char, kTokenMagic.size()> head{};
  file.read_at(0, std::as_writable_bytes(std::span(head)));
  return std::string_view(head.data(), head.size()) == kTokenMagic;
}

std::array<std::byte, kTokenHeaderBytes> to_bytes(const TokenFileHeader& header) {
  RawHeader raw{};
  std::ranges::copy(kTokenMagic, raw.magic.begin());
  raw.version = kVersion;
  raw.bytes_per_token = header.bytes_per_token;
  raw.num_tokens = header.num_tokens;
  raw.vocab_size = header.vocabulary.size;
  raw.end_of_document = header.vocabulary.end_of_document.value_or(kNoToken);
  raw.num_documents = header.num_documents;
  std::ranges::copy(header.vocabulary.tokenizer, raw.tokenizer.begin());
  raw.shard_place = static_cast<std::uint32_t>(header.shard_place);
  std::array<std::byte, kTokenHeaderBytes> bytes{};
  std::memcpy(bytes.data(), &raw, sizeof raw);
  return bytes;
}

TokenFileHeader parse_token_header(const std::string& file, std::span<const std::byte> bytes,
                                   std::uint64_t file_bytes) {
  check<DataError>(bytes.size() >= kTokenHeaderBytes && file_bytes >= kTokenHeaderBytes,
                   "{}: {} bytes are less than the {} of a token file's header: make the file "
                   "with fsdptrain data prepare",
                   file, bytes.size(), kTokenHeaderBytes);
  RawHeader raw{};
  std::memcpy(&raw, bytes.data(), sizeof raw);
  check_kind(file, raw);
  const auto reserved = bytes.first(kTokenHeaderBytes).subspan(kReservedOffset);
  const auto nonzero = std::ranges::find_if(reserved, [](std::byte b) { return b != std::byte{}; });
  check<DataError>(nonzero == reserved.end(), "{}: byte {} of the header must be 0, got {}", file,
                   kReservedOffset + static_cast<std::size_t>(nonzero - reserved.begin()),
                   nonzero == reserved.end() ? 0 : static_cast<int>(*nonzero));

  TokenFileHeader header;
  header.vocabulary.size = raw.vocab_size;
  if (raw.end_of_document != kNoToken) {
    header.vocabulary.end_of_document = raw.end_of_document;
  }
  const std::string_view padded(raw.tokenizer.data(), raw.tokenizer.size());
  header.vocabulary.tokenizer = padded.substr(0, padded.find_last_not_of('\0') + 1);
  header.bytes_per_token = raw.bytes_per_token;
  header.num_tokens = raw.num_tokens;
  header.num_documents = raw.num_documents;
  header.shard_place = static_cast<ShardPlace>(raw.shard_place);
  check_counts(file, header, file_bytes);
  return header;
}

}  // namespace fsdptrain::data
