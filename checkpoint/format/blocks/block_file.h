#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/blocks/digest.h"
#include "checkpoint/io/file_system.h"
#include "checkpoint/safetensors/header.h"
#include "checkpoint/safetensors/layout.h"
#include "runtime/base/thread_pool.h"

// One file of a checkpoint (FORMAT.md): a safetensors file whose first tensor is a table with the
// XXH3-64 of each 1 MiB block of the bytes behind it, so that a reader verifies the blocks it
// touches and no others. A file is known by the XXH3-128 of its header and table, which the
// manifest holds.
namespace fsdptrain::checkpoint {

inline constexpr std::uint64_t kBlockBytes = 1 << 20;
// Of so many bytes behind the table; the last one may be shorter.
std::uint64_t num_blocks_of(std::uint64_t data_nbytes);
// The name of the table in the file: int64, one per block. The metadata of the header have under
// the same name the XXH3-128 of the table, so that a reader can say which of the two is damaged.
inline constexpr std::string_view kBlockTable = "block_digests";

// What a manifest says of a file.
struct FileFacts {
  std::uint64_t nbytes = 0;
  Digest digest;

  friend bool operator==(const FileFacts&, const FileFacts&) = default;
};

// Writes a new file from its first byte to its last. The file is the caller's to remove after an
// error. One thread uses it.
class BlockFileWriter {
 public:
  // In the order of the file. DataError for a name that is there twice or is the table's, also in
  // the metadata.
  BlockFileWriter(FileSystem& files, const std::filesystem::path& path,
                  std::map<std::string, std::string> metadata,
                  const std::vector<TensorSpec>& tensors);

  // The bytes of all tensors one after the other, cut anywhere.
  void append(std::span<const std::byte> bytes);
  // Writes the table and returns when all has reached the device. ShapeError unless as many bytes
  // were given as the tensors have.
  FileFacts finish();

 private:
  void write_block(std::span<const std::byte> bytes);

  std::unique_ptr<WritableFile> file_;
  SafetensorsHeader header_;
  std::vector<std::uint64_t> table_;
  std::uint64_t data_offset_ = 0;
  std::uint64_t data_nbytes_ = 0;
  std::uint64_t written_ = 0;
  // Of the block that is not full yet.
  std::vector<std::byte> block_;
};

// Opening checks the header, the table's place, and against `expected` size and digest: DataError
// naming the file, and which of header or table. Threads may read at the same time.
class BlockFileReader {
 public:
  // Without facts what a manifest would say is not checked.
  BlockFileReader(FileSystem& files, const std::filesystem::path& path,
                  const std::optional<FileFacts>& expected);

  const std::filesystem::path& path() const { return file_->path(); }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Of the tensors beside the table; `begin` and `end` count from the first byte behind it.
  const std::vector<TensorEntry>& entries() const { return header_.entries; }
  // Null where there is none of this name.
  const TensorEntry* find(std::string_view name) const;

  // Bytes from `begin` on, counted as in entries(), verified: what lies in whole blocks is read in
  // place, by the threads of `pool` where there is one. DataError for the first block that differs:
  // its file, offset, and all tensors in it. The last block that was read for a part of it is kept
  // by `ends`, for a read that goes on from there.
  class Ends;
  void read(std::uint64_t begin, std::span<std::byte> out, Ends& ends,
            ThreadPool* pool = nullptr) const;
  // Reads every block into one buffer. `each` gets the bytes of each block behind it. One
  // DataError, at the end, for all blocks that differ.
  void verify(const std::function<void(std::uint64_t nbytes)>& each) const;

  std::uint64_t data_nbytes() const { return data_nbytes_; }

 private:
  // Of the header as it was parsed: the table is taken from its entries.
  void take_entries();
  std::uint64_t block_begin(std::uint64_t index) const { return index * kBlockBytes; }
  std::uint64_t block_end(std::uint64_t index) const;
  void read_block(std::uint64_t index, std::span<std::byte> out) const;
  // From `index` on; the last may be shorter.
  void read_blocks(std::uint64_t index, std::span<std::byte> out, ThreadPool* pool) const;
  // For a message: where the block is, and the tensors in it.
  std::string describe_block(std::uint64_t index) const;

  std::unique_ptr<ReadableFile> file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  // index into entries()
  std::vector<std::uint64_t> table_;
  std::uint64_t data_offset_ = 0;
  std::uint64_t data_nbytes_ = 0;
};

// Of reads of one reader, which outlives it. One thread uses it.
class BlockFileReader::Ends {
 private:
  friend class BlockFileReader;

  std::span<const std::byte> block(const BlockFileReader& reader, std::uint64_t index);

  const BlockFileReader* reader_ = nullptr;
  std::uint64_t index_ = 0;
  // Empty: none is kept.
  std::vector<std::byte> bytes_;
};

}  // namespace fsdptrain::checkpoint
