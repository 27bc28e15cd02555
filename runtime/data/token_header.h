#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/file.h"

// The header of a token file (docs/formats.md): 1,024 bytes, little-endian. These offsets and
// values are embedded in files: do not change them.
//
//   byte  type       meaning
//   0     char[8]    "FSDPTOK1"
//   8     uint32     version: 1
//   12    uint32     bytes per token: 2 or 4
//   16    uint64     number of tokens
//   24    uint32     vocabulary size: 1 to 65,536 at 2 bytes per token, to 2^31 - 1 at 4
//   28    uint32     token that ends a document; 0xffffffff: none
//   32    uint64     number of documents
//   40    char[32]   name of the tokenizer, zero padded
//   72    uint32     place in a set of shards: 0 in none, 1 one with more behind it, 2 the last
//   76    948 bytes  zero
namespace fsdptrain::data {

inline constexpr std::size_t kTokenHeaderBytes = 1024;
inline constexpr std::string_view kTokenMagic = "FSDPTOK1";
inline constexpr std::uint32_t kLargestNarrowVocabulary = 65'536;
// Tokens stay positive in any signed type of 32 bits.
inline constexpr std::uint32_t kLargestVocabulary = 2'147'483'647;
// Beyond every vocabulary; the end of document in a header where there is none.
inline constexpr std::uint32_t kNoToken = 0xffffffff;

// What the numbers of a file mean; files that are read together share it.
struct Vocabulary {
  std::uint32_t size = 0;
  std::optional<std::uint32_t> end_of_document;
  std::string tokenizer;

  friend bool operator==(const Vocabulary&, const Vocabulary&) = default;
};

// For messages.
std::string to_string(const Vocabulary& vocabulary);

// The bytes of a token in files that are written: as few as hold the vocabulary.
inline std::uint32_t bytes_per_token(const Vocabulary& vocabulary) {
  return vocabulary.size <= kLargestNarrowVocabulary ? 2 : 4;
}

// DataError, with the name of the file, for a vocabulary that no file can have.
void check_vocabulary(const std::string& file, const Vocabulary& vocabulary);

// DataError, with both names, unless two files that are read together have one vocabulary.
void check_same_vocabulary(const std::string& first, const Vocabulary& vocabulary,
                           const std::string& other, const Vocabulary& other_vocabulary);

// By it a set tells that its last shards are missing.
enum class ShardPlace : std::uint32_t { None = 0, Inner = 1, Last = 2 };

struct TokenFileHeader {
  Vocabulary vocabulary;
  std::uint32_t bytes_per_token = 2;
  std::uint64_t num_tokens = 0;
  // Ends of documents, and one more for tokens behind the last.
  std::uint64_t num_documents = 0;
  ShardPlace shard_place = ShardPlace::None;
};

// Whether the file begins as a token file does, of this version or another.
bool is_token_file(const File& file);

std::array<std::byte, kTokenHeaderBytes> to_bytes(const TokenFileHeader& header);

// From the first bytes of a file of `file_bytes`; DataError, with the name of the file and the
// values, for a header that is none or does not fit that size.
TokenFileHeader parse_token_header(const std::string& file, std::span<const std::byte> bytes,
                                   std::uint64_t file_bytes);

}  // namespace fsdptrain::data
