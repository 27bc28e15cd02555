#include "runtime/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "runtime/base/error.h"

namespace fsdptrain::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::string_view kMagic = "FSDPTOK1";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kBytesPerToken = 2;
constexpr std::uint32_t kNoToken = 0xffffffff;
constexpr std::uint32_t kLargestVocabulary = 65536;
constexpr std::size_t kTokenizerBytes = 32;
constexpr std::size_t kTokensPerWrite = std::size_t{1} << 19;

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
};
static_assert(sizeof(RawHeader) == 72);

RawHeader to_raw(const TokenFileHeader& header) {
  RawHeader raw{};
  std::ranges::copy(kMagic, raw.magic.begin());
  raw.version = kVersion;
  raw.bytes_per_token = kBytesPerToken;
  raw.num_tokens = header.num_tokens;
  raw.vocab_size = header.vocab_size;
  raw.end_of_document = header.end_of_document.value_or(kNoToken);
  raw.num_documents = header.num_documents;
  std::ranges::copy(header.tokenizer, raw.tokenizer.begin());
  return raw;
}

bool is_printable(char c) {
  return c > ' ' && c <= '~';
}

// The same rules for what is written and what is read.
void check_header(const std::string& file, const TokenFileHeader& header) {
  check<DataError>(header.vocab_size >= 1 && header.vocab_size <= kLargestVocabulary,
                   "{}: the vocabulary size must be 1 to {}, got {}", file, kLargestVocabulary,
                   header.vocab_size);
  check<DataError>(!header.end_of_document || *header.end_of_document < header.vocab_size,
                   "{}: the end-of-document token must be below the vocabulary size {}, got {}",
                   file, header.vocab_size, header.end_of_document.value_or(kNoToken));
  check<DataError>(header.num_documents <= header.num_tokens,
                   "{}: {} documents do not fit {} tokens", file, header.num_documents,
                   header.num_tokens);
  check<DataError>(!header.tokenizer.empty() && header.tokenizer.size() <= kTokenizerBytes &&
                       std::ranges::all_of(header.tokenizer, is_printable),
                   "{}: the name of the tokenizer must be 1 to {} printable characters, got {:?}",
                   file, kTokenizerBytes, header.tokenizer);
}

TokenFileHeader parse_header(const std::string& file, std::span<const std::byte> bytes) {
  check<DataError>(bytes.size() >= kTokenHeaderBytes,
                   "{}: {} bytes are less than the {} of a token file's header: make the file "
                   "with fsdptrain data prepare",
                   file, bytes.size(), kTokenHeaderBytes);
  RawHeader raw{};
  std::memcpy(&raw, bytes.data(), sizeof raw);
  const std::string_view magic(raw.magic.data(), raw.magic.size());
  check<DataError>(magic == kMagic,
                   "{}: not a token file: it must begin with {}, got {:?}: make it with "
                   "fsdptrain data prepare",
                   file, kMagic, magic);
  check<DataError>(raw.version == kVersion, "{}: the version must be {}, got {}", file, kVersion,
                   raw.version);
  check<DataError>(raw.bytes_per_token != 4,
                   "{}: tokens of 4 bytes are reserved for a later version", file);
  check<DataError>(raw.bytes_per_token == kBytesPerToken,
                   "{}: the bytes per token must be {}, got {}", file, kBytesPerToken,
                   raw.bytes_per_token);
  const auto reserved = bytes.first(kTokenHeaderBytes).subspan(sizeof raw);
  const auto nonzero = std::ranges::find_if(reserved, [](std::byte b) { return b != std::byte{}; });
  check<DataError>(nonzero == reserved.end(), "{}: byte {} of the header must be 0, got {}", file,
                   sizeof raw + static_cast<std::size_t>(nonzero - reserved.begin()),
                   nonzero == reserved.end() ? 0 : static_cast<int>(*nonzero));

  TokenFileHeader header;
  header.num_tokens = raw.num_tokens;
  header.vocab_size = raw.vocab_size;
  if (raw.end_of_document != kNoToken) {
    header.end_of_document = raw.end_of_document;
  }
  header.num_documents = raw.num_documents;
  const std::string_view padded(raw.tokenizer.data(), raw.tokenizer.size());
  header.tokenizer = padded.substr(0, padded.find_last_not_of('\0') + 1);
  check_header(file, header);
  return header;
}

// The header of a new file, checked before anything is created.
TokenFileHeader new_header(const std::filesystem::path& path, TokenFileHeader header) {
  check_header(path.native(), header);
  return header;
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, std::uint32_t vocab_size,
                                 std::optional<std::uint32_t> end_of_document,
                                 const std::string& tokenizer)
    : header_(new_header(path, {0, vocab_size, end_of_document, 0, tokenizer})), file_(path) {
  buffer_.reserve(kTokensPerWrite);
}

void TokenFileWriter::append(std::span<const std::uint16_t> tokens) {
  if (tokens.empty()) {
    return;
  }
  const auto largest = std::ranges::max_element(tokens);
  check<DataError>(*largest < header_.vocab_size,
                   "{}: token {} is outside the vocabulary of {}, at offset {}",
                   file_.path().native(), *largest, header_.vocab_size,
                   header_.num_tokens + static_cast<std::uint64_t>(largest - tokens.begin()));
  const std::uint32_t end = header_.end_of_document.value_or(kNoToken);
  header_.num_documents += static_cast<std::uint64_t>(std::ranges::count(tokens, end));
  ends_document_ = tokens.back() == end;
  header_.num_tokens += tokens.size();
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), kTokensPerWrite - buffer_.size()));
    buffer_.insert(buffer_.end(), part.begin(), part.end());
    tokens = tokens.subspan(part.size());
    if (buffer_.size() == kTokensPerWrite) {
      flush();
    }
  }
}

void TokenFileWriter::flush() {
  file_.write_at(kTokenHeaderBytes + num_flushed_ * kBytesPerToken,
                 std::as_bytes(std::span(buffer_)));
  num_flushed_ += buffer_.size();
  buffer_.clear();
}

void TokenFileWriter::commit() {
  flush();
  header_.num_documents += ends_document_ ? 0 : 1;
  ends_document_ = true;
  std::array<std::byte, kTokenHeaderBytes> bytes{};
  const RawHeader raw = to_raw(header_);
  std::memcpy(bytes.data(), &raw, sizeof raw);
  file_.write_at(0, bytes);
  file_.commit();
}

TokenFile::TokenFile(const std::filesystem::path& path)
    : file_(path), header_(parse_header(path.native(), file_.bytes())) {
  const std::uint64_t token_bytes = file_.bytes().size() - kTokenHeaderBytes;
  check<DataError>(
      token_bytes % kBytesPerToken == 0 && token_bytes / kBytesPerToken == header_.num_tokens,
      "{}: the header counts {} tokens of {} bytes, but {} bytes follow it: the file "
      "is damaged or was cut short",
      path.native(), header_.num_tokens, kBytesPerToken, token_bytes);
  const std::byte* const first = file_.bytes().data() + kTokenHeaderBytes;
  // The mapping is page aligned, so the tokens are aligned.
  tokens_ = {reinterpret_cast<const std::uint16_t*>(first), header_.num_tokens};
}

std::span<const std::uint16_t> TokenFile::checked_tokens(std::uint64_t begin,
                                                         std::uint64_t end) const {
  check<ShapeError>(begin <= end && end <= num_tokens(),
                    "{}: tokens [{}, {}) are not within its {} tokens", path().native(), begin, end,
                    num_tokens());
  file_.check_size();
  const auto tokens = tokens_.subspan(begin, end - begin);
  const auto bad = std::ranges::find_if(
      tokens, [this](std::uint16_t token) { return token >= header_.vocab_size; });
  check<DataError>(bad == tokens.end(),
                   "{}: token {} at offset {} is outside the vocabulary of {}: the file is damaged",
                   path().native(), bad == tokens.end() ? 0 : *bad,
                   begin + static_cast<std::uint64_t>(bad - tokens.begin()), header_.vocab_size);
  return tokens;
}

void TokenFile::read(std::uint64_t begin, std::span<std::int64_t> out) const {
  const std::uint64_t num_left = num_tokens() - std::min(begin, num_tokens());
  check<ShapeError>(out.size() <= num_left, "{}: {} tokens from {} on are not within its {} tokens",
                    path().native(), out.size(), begin, num_tokens());
  std::ranges::copy(checked_tokens(begin, begin + out.size()), out.begin());
}

}  // namespace fsdptrain::data
