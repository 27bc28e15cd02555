#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/jsonl.h"
#include "runtime/data/text_files.h"

namespace fsdptrain::data {

// A part of all texts as byte tokens, and the documents it cuts them into.
struct ByteBlock {
  struct Part {
    // Behind its last token.
    std::size_t end = 0;
    // False where the document goes on in the next block.
    bool ends_document = false;
  };
  // A piece of a JSONL file: its lines are numbered from the file's first one on.
  struct Lines {
    std::size_t file = 0;
    bool begins_file = false;
    JsonlLines lines;
  };

  std::span<const std::uint16_t> tokens;
  std::vector<Part> parts;
  std::vector<Lines> lines;
};

// All texts, one behind the other, cut into blocks of one size. Each file counts one byte more than
// it has, its end, so that an empty one has a place too. Immutable: threads may share it.
class ByteBlocks {
 public:
  explicit ByteBlocks(std::vector<TextFile> files);

  const std::vector<TextFile>& files() const { return files_; }
  std::uint64_t num_blocks() const;
  // The bytes of the blocks before this one.
  std::uint64_t begin_of(std::uint64_t block) const;
  std::uint64_t nbytes() const { return begins_.back(); }

 private:
  friend class ByteBlockReader;

  std::vector<TextFile> files_;
  // Where each file begins, and the end: size files + 1.
  std::vector<std::uint64_t> begins_;
};

// Reads blocks for one thread, in any order; keeps its buffers. `blocks` must outlive it.
class ByteBlockReader {
 public:
  ByteBlockReader(const ByteBlocks& blocks, const std::string& jsonl_field);

  // Valid until the next read. DataError if a file is not what was listed any more, IoError if it
  // cannot be read; what is wrong with lines is in the block.
  const ByteBlock& read(std::uint64_t block);

 private:
  void read_text(const File& file, std::uint64_t begin, std::uint64_t end);
  void append(std::span<const char> bytes);
  void end_document();

  const ByteBlocks& blocks_;
  JsonlReader jsonl_;
  std::vector<char> bytes_;
  std::vector<std::uint16_t> tokens_;
  std::size_t num_tokens_ = 0;
  ByteBlock block_;
};

}  // namespace fsdptrain::data
