#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/mapped_file.h"

// Tokens on disk (docs/formats.md). Little-endian; a header of 1,024 bytes, then the tokens as
// uint16. These offsets and values are embedded in files: do not change them.
//
//   byte  type       meaning
//   0     char[8]    "FSDPTOK1"
//   8     uint32     version: 1
//   12    uint32     bytes per token: 2 (4 is reserved)
//   16    uint64     number of tokens
//   24    uint32     vocabulary size: 1 to 65,536
//   28    uint32     token that ends a document; 0xffffffff: none
//   32    uint64     number of documents
//   40    char[32]   name of the tokenizer, zero padded
//   72    952 bytes  zero
namespace fsdptrain::data {

inline constexpr std::size_t kTokenHeaderBytes = 1024;

struct TokenFileHeader {
  std::uint64_t num_tokens = 0;
  std::uint32_t vocab_size = 0;
  std::optional<std::uint32_t> end_of_document;
  // Ends of documents, and one more for tokens behind the last.
  std::uint64_t num_documents = 0;
  std::string tokenizer;
};

// Writes a token file in one step: nothing appears at its path before commit(), and nothing stays
// without one. IoError, with the path, the bytes, the system's reason and what to do, where the
// disk is full or refuses.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::filesystem::path& path, std::uint32_t vocab_size,
                  std::optional<std::uint32_t> end_of_document, const std::string& tokenizer);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter() = default;

  // DataError for a token outside the vocabulary.
  void append(std::span<const std::uint16_t> tokens);
  // The file is complete, durable and under its name when this returns.
  void commit();

  // The counts so far.
  const TokenFileHeader& header() const { return header_; }

 private:
  void flush();

  TokenFileHeader header_;
  AtomicFile file_;
  std::vector<std::uint16_t> buffer_;
  std::uint64_t num_flushed_ = 0;
  bool ends_document_ = true;
};

// A token file, mapped read-only. The header and the size are checked on opening, DataError with
// the file and the values; tokens are checked when they are read, and
// so is that the file has not been cut short meanwhile (mapped_file.h says what escapes this).
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const TokenFileHeader& header() const { return header_; }
  std::uint64_t num_tokens() const { return header_.num_tokens; }
  // Not checked against the vocabulary, nor against a cut.
  std::span<const std::uint16_t> tokens() const { return tokens_; }

  // Tokens [begin, end); DataError with file, offset and value if one is outside the vocabulary.
  std::span<const std::uint16_t> checked_tokens(std::uint64_t begin, std::uint64_t end) const;
  // The same, from `begin` on, as many as `out` holds.
  void read(std::uint64_t begin, std::span<std::int64_t> out) const;

 private:
  MappedFile file_;
  TokenFileHeader header_;
  std::span<const std::uint16_t> tokens_;
};

}  // namespace fsdptrain::data
