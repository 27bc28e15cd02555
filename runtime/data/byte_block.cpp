#include "runtime/data/byte_block.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/byte_text.h"

namespace fsdptrain::data {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

void check_not_grown(const File& file, std::uint64_t nbytes) {
  std::array<std::byte, 1> beyond{};
  check<DataError>(file.read_at(nbytes, beyond) == 0,
                   "{}: grew beyond {} bytes while it was read: prepare a copy that nobody writes",
                   file.path().native(), nbytes);
}

}  // namespace

ByteBlocks::ByteBlocks(std::vector<TextFile> files) : files_(std::move(files)), begins_{0} {
  for (const TextFile& file : files_) {
    begins_.push_back(begins_.back() + file.nbytes + 1);
  }
}

std::uint64_t ByteBlocks::num_blocks() const {
  return (nbytes() + kBlockBytes - 1) / kBlockBytes;
}

std::uint64_t ByteBlocks::begin_of(std::uint64_t block) const {
  return std::min(block * kBlockBytes, nbytes());
}

ByteBlockReader::ByteBlockReader(const ByteBlocks& blocks, const std::string& jsonl_field)
    : blocks_(blocks), jsonl_(jsonl_field) {}

const ByteBlock& ByteBlockReader::read(std::uint64_t block) {
  num_tokens_ = 0;
  block_ = {};
  const std::uint64_t begin = blocks_.begin_of(block);
  const std::uint64_t end = blocks_.begin_of(block + 1);
  const auto& begins = blocks_.begins_;
  auto index =
      static_cast<std::size_t>(std::ranges::upper_bound(begins, begin) - begins.begin()) - 1;
  for (; index < blocks_.files_.size() && begins[index] < end; ++index) {
    const TextFile& text = blocks_.files_[index];
    const File file = File::open_for_reading(text.path);
    const std::uint64_t first = std::max(begin, begins[index]) - begins[index];
    const std::uint64_t last = std::min(end - begins[index], text.nbytes);
    const bool is_end = end - begins[index] > text.nbytes;
    if (text.format == TextFormat::Text) {
      read_text(file, std::max(first, text.begin), std::max(last, text.begin));
    } else {
      block_.lines.push_back(
          {index, first == 0, jsonl_.read(file, text.nbytes, first, last, [this](auto document) {
             append(document);
             end_document();
           })});
    }
    if (is_end) {
      check_not_grown(file, text.nbytes);
    }
    if (is_end && text.format == TextFormat::Text) {
      end_document();
    } else if (text.format == TextFormat::Text) {
      block_.parts.push_back({num_tokens_, false});
    }
  }
  block_.tokens = std::span(tokens_).first(num_tokens_);
  return block_;
}

void ByteBlockReader::read_text(const File& file, std::uint64_t begin, std::uint64_t end) {
  // As far from a cache line here as in the file: copies out of the system's pages are twice as
  // fast.
  constexpr std::uint64_t kAlignment = 64;
  bytes_.resize(kBlockBytes + kAlignment);
  const auto part = std::span(bytes_).subspan(begin % kAlignment, end - begin);
  const std::size_t read = file.read_at(begin, std::as_writable_bytes(part));
  check<DataError>(read == part.size(), "{}: became shorter while it was read: {} bytes are left",
                   file.path().native(), begin + read);
  append(part);
}

void ByteBlockReader::append(std::span<const char> bytes) {
  const std::size_t end = num_tokens_ + bytes.size();
  if (tokens_.size() < end + 1) {
    tokens_.resize(std::max<std::size_t>(2 * tokens_.size(), end + 1));
  }
  std::uint16_t* const out = tokens_.data() + num_tokens_;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    out[i] = static_cast<unsigned char>(bytes[i]);
  }
  num_tokens_ = end;
}

void ByteBlockReader::end_document() {
  append({});  // room for one more
  tokens_[num_tokens_++] = kByteEndOfDocument;
  block_.parts.push_back({num_tokens_, true});
}

}  // namespace fsdptrain::data
