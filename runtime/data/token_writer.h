#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/data/token_header.h"

namespace fsdptrain::data {

// Of a set: whoever reads it maps them all.
inline constexpr std::uint64_t kLargestShards = 10'000;

// Writes a token file, or a set of shards with `shard_tokens` tokens each, the last with the rest:
// NAME-00000.bin, NAME-00001.bin, ... for a path NAME or NAME.anything. Nothing appears under
// these names before commit(), and nothing stays without one. Only shards that are being written
// take a descriptor. IoError, with the path, the bytes, the system's reason and what to do, where
// the disk is full or refuses.
class TokenWriter {
 public:
  struct Options {
    std::filesystem::path path;
    Vocabulary vocabulary;
    // 0: one file, at `path` itself.
    std::uint64_t shard_tokens = 0;
  };

  // DataError for a vocabulary that no file can have; PathError. ConfigError if shards of that name
  // exist: mixed with a set of another length they could not be told apart. ConfigError if what is
  // at `path` is no token file, and so not this writer's to replace.
  explicit TokenWriter(const Options& options);
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  ~TokenWriter();

  // Makes room for the next tokens and returns the place of the first; one thread at a time.
  // ConfigError beyond kLargestShards.
  std::uint64_t reserve(std::uint64_t num_tokens);
  // Writes into that room, every place of it once; threads may write into their own at the same
  // time, and while another reserves. The type is that of the width: uint16_t up to a vocabulary
  // of 65,536, else uint32_t. DataError for a token outside the vocabulary.
  void write(std::uint64_t begin, std::span<const std::uint16_t> tokens);
  void write(std::uint64_t begin, std::span<const std::uint32_t> tokens);
  // reserve() and write().
  void append(std::span<const std::uint16_t> tokens) { write(reserve(tokens.size()), tokens); }
  void append(std::span<const std::uint32_t> tokens) { write(reserve(tokens.size()), tokens); }
  // Writes headers and brings all to the device: what is left of commit() is names. Nothing may be
  // written from then on.
  void complete();
  // All files are complete, durable and under their names when this returns. All are written
  // before the first takes its name; shards take theirs from the last to the first, so that a set
  // that begins at 0 is whole. After an error none is under its name, nor an older file.
  void commit();
  // Removes again what commit() has put there.
  void withdraw();

  std::uint64_t num_tokens() const { return num_tokens_; }
  // Of the whole set; complete when all writes are.
  std::uint64_t num_documents() const;
  // Where the files are, or will be.
  std::vector<std::filesystem::path> paths() const;

 private:
  struct Shard;

  std::filesystem::path path_of(std::size_t shard) const;
  template <class Token>
  void write_tokens(std::uint64_t begin, std::span<const Token> tokens);
  template <class Token>
  void write_part(std::size_t index, std::uint64_t offset, std::span<const Token> tokens);
  // Those of shard `index` and the one before that are whole and not the last, claimed for the
  // caller.
  std::vector<Shard*> claim_whole(std::size_t index);
  void finish(Shard& shard, ShardPlace place) const;

  Options options_;
  std::uint64_t num_tokens_ = 0;
  bool is_complete_ = false;
  // Guards the list, which grows while threads write, and the counts in it.
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

// The files of the shard set of that path that exist: NAME-NNNNN.bin, by name.
std::vector<std::filesystem::path> existing_shards(const std::filesystem::path& path);

}  // namespace fsdptrain::data
