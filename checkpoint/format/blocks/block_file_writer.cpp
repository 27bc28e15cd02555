#include <algorithm>
#include <utility>

#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/safetensors/layout.h"
#include "kernels/checksum.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {
namespace {

// The table, then the tensors.
std::vector<TensorEntry> place_with_table(const std::string& file,
                                          const std::vector<TensorSpec>& tensors) {
  std::vector<TensorSpec> all = {
      {.name = std::string(kBlockTable), .dtype = DType::Int64, .shape = {0}}};
  all.insert(all.end(), tensors.begin(), tensors.end());
  const std::uint64_t data_nbytes = place_tensors(file, all).back().end;
  all.front().shape = {static_cast<std::int64_t>(num_blocks_of(data_nbytes))};
  return place_tensors(file, all);
}

}  // namespace

std::uint64_t num_blocks_of(std::uint64_t data_nbytes) {
  return data_nbytes / kBlockBytes + (data_nbytes % kBlockBytes == 0 ? 0 : 1);
}

BlockFileWriter::BlockFileWriter(FileSystem& files, const std::filesystem::path& path,
                                 std::map<std::string, std::string> metadata,
                                 const std::vector<TensorSpec>& tensors)
    : header_{.metadata = std::move(metadata),
              .entries = place_with_table(path.string(), tensors)} {
  const bool is_new =
      header_.metadata.emplace(std::string(kBlockTable), to_string(Digest{})).second;
  check<DataError>(is_new, "{}: the metadata must not have {}", path.string(), kBlockTable);
  const std::uint64_t table_nbytes = header_.entries.front().nbytes();
  data_offset_ = render_file_beginning(path.string(), header_).size() + table_nbytes;
  data_nbytes_ = header_.entries.back().end - table_nbytes;
  table_.reserve(num_blocks_of(data_nbytes_));
  file_ = files.create(path);
}

void BlockFileWriter::append(std::span<const std::byte> bytes) {
  check<ShapeError>(bytes.size() <= data_nbytes_ - written_,
                    "{}: its tensors have {} bytes, got {} behind {}", file_->path().string(),
                    data_nbytes_, bytes.size(), written_);
  written_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kBlockBytes - block_.size());
    const std::span<const std::byte> part = bytes.first(count);
    bytes = bytes.subspan(count);
    // A whole block is written from where it lies.
    if (count == kBlockBytes) {
      write_block(part);
      continue;
    }
    block_.reserve(kBlockBytes);
    block_.insert(block_.end(), part.begin(), part.end());
    if (block_.size() == kBlockBytes) {
      write_block(block_);
      block_.clear();
    }
  }
}

void BlockFileWriter::write_block(std::span<const std::byte> bytes) {
  // Blocks that the device is given at once.
  constexpr std::uint64_t kBatch = 8;
  const std::uint64_t index = table_.size();
  table_.push_back(kernels::checksum64(bytes));
  file_->write_at(data_offset_ + index * kBlockBytes, bytes);
  if (table_.size() % kBatch == 0) {
    file_->begin_sync(data_offset_ + (table_.size() - kBatch) * kBlockBytes, kBatch * kBlockBytes);
  }
}

FileFacts BlockFileWriter::finish() {
  check<ShapeError>(written_ == data_nbytes_, "{}: its tensors have {} bytes, got {}",
                    file_->path().string(), data_nbytes_, written_);
  if (!block_.empty()) {
    write_block(block_);
    block_.clear();
  }
  const std::span<const std::byte> table = std::as_bytes(std::span(table_));
  header_.metadata[std::string(kBlockTable)] = to_string(digest_of(table));
  std::string beginning = render_file_beginning(file_->path().string(), header_);
  beginning.append(reinterpret_cast<const char*>(table.data()), table.size());
  file_->write_at(0, std::as_bytes(std::span(beginning)));
  file_->sync();
  file_->close();
  return {.nbytes = data_offset_ + data_nbytes_, .digest = digest_of(beginning)};
}

}  // namespace fsdptrain::checkpoint
