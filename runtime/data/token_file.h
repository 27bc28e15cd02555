#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "runtime/base/mapped_file.h"
#include "runtime/data/token_header.h"

namespace fsdptrain::data {

// A token file of any size and either width, mapped read-only. Opening reads and checks the header
// alone, DataError with the file and the values; reading touches the pages of what is read, which
// stay the file's. Tokens are checked when they are read, and so is that the file has not been cut
// short meanwhile (mapped_file.h says what escapes this). Threads may read at the same time.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return mapping_.path(); }
  // As MappedFile::open.
  File open() const { return mapping_.open(); }
  const TokenFileHeader& header() const { return header_; }
  std::uint64_t num_tokens() const { return header_.num_tokens; }
  std::uint64_t nbytes() const { return mapping_.bytes().size(); }
  // As MappedFile::advise_random: for windows of training, not for what is read from end to end.
  void advise_random() const { mapping_.advise_random(); }

  // The tokens from `begin` on, as many as `out` holds; DataError with file, offset and value if
  // one is outside the vocabulary.
  void read(std::uint64_t begin, std::span<std::int64_t> out) const;
  // The check of read(), on the bytes of tokens from `begin` on, wherever they come from; returns
  // how many of them end a document.
  std::uint64_t check_tokens(std::uint64_t begin, std::span<const std::byte> tokens) const;
  // DataError unless the header's number of documents is that of a file of `num_ends` ends; reads
  // the last token.
  void check_num_documents(std::uint64_t num_ends) const;

 private:
  MappedFile mapping_;
  TokenFileHeader header_;
};

}  // namespace fsdptrain::data
