#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/token_file.h"

namespace fsdptrain::data {

// Token files in an order, read as one stream: offsets run on from file to file, and what is read
// may span them. Threads may read at the same time.
class TokenSource {
 public:
  // Each path is a token file, or a folder, which stands for all *.bin in it by name. DataError if
  // there is none, if one is no file, if a shard set in a folder lacks a shard or is two sets, or
  // if the files have not all one vocabulary.
  explicit TokenSource(const std::vector<std::filesystem::path>& paths);
  explicit TokenSource(const std::filesystem::path& path)
      : TokenSource(std::vector<std::filesystem::path>{path}) {}

  // Windows of it are read in no order. Unsaid, it is read from end to end.
  void advise_random() const;

  // The paths it was made of, for messages.
  const std::string& name() const { return name_; }
  const Vocabulary& vocabulary() const { return files_.front()->header().vocabulary; }
  std::uint64_t num_tokens() const { return begins_.back(); }
  const std::vector<std::unique_ptr<const TokenFile>>& files() const { return files_; }
  // A document that goes on in the next file counts once. Reads the last token of each file.
  std::uint64_t count_documents() const;

  // As TokenFile::read, with offsets of the stream; errors count the offset in their file.
  void read(std::uint64_t begin, std::span<std::int64_t> out) const;

 private:
  std::string name_;
  std::vector<std::unique_ptr<const TokenFile>> files_;
  // The offset of each file, and behind the last the end: size files + 1.
  std::vector<std::uint64_t> begins_;
};

}  // namespace fsdptrain::data
