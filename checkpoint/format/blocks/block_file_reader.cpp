#include <algorithm>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/format/blocks/file_beginning.h"
#include "kernels/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

// Opened for a manifest, nothing in the file is believed before this.
void check_digest(const std::string& file, const FileBeginning& beginning, const FileFacts& facts,
                  const FileFacts& expected) {
  if (facts.digest == expected.digest) {
    return;
  }
  fail<DataError>(
      "{}: the {} is damaged, or the file is of another checkpoint: header and block "
      "table have the digest {}, but the manifest says {}",
      file, damaged_part(beginning, facts.nbytes, expected.digest), to_string(facts.digest),
      to_string(expected.digest));
}

// Also where there is no manifest to ask.
void check_table(const std::string& file, const SafetensorsHeader& header, std::string_view table) {
  const auto digest = header.metadata.find(std::string(kBlockTable));
  check<DataError>(digest != header.metadata.end(),
                   "{}: the header's metadata have no {}: it is no file of a checkpoint", file,
                   kBlockTable);
  const Digest stored = parse_digest(digest->second, file + ": the header's " + digest->first);
  check<DataError>(stored == digest_of(table),
                   "{}: the block table has the digest {}, but the header says {}: one of them is "
                   "damaged",
                   file, to_string(digest_of(table)), digest->second);
}

}  // namespace

BlockFileReader::BlockFileReader(FileSystem& files, const std::filesystem::path& path,
                                 const std::optional<FileFacts>& expected)
    : file_(files.open(path)) {
  const std::string file = path.string();
  FileFacts facts{.nbytes = file_->size(), .digest = {}};
  check<DataError>(!expected || facts.nbytes == expected->nbytes,
                   "{}: it has {} bytes, but the manifest says {}: it was cut short, or is of "
                   "another checkpoint",
                   file, facts.nbytes, expected ? expected->nbytes : 0);
  const FileBeginning beginning = read_file_beginning(*file_);
  facts.digest = digest_of(beginning.text);
  if (expected) {
    check_digest(file, beginning, facts, *expected);
  }
  data_offset_ = beginning.text.size();
  data_nbytes_ = facts.nbytes - data_offset_;
  header_ =
      parse_safetensors_header(file, beginning.header(), data_nbytes_ + beginning.table_nbytes);
  check_table(file, header_, beginning.table());
  table_.resize(beginning.table_nbytes / sizeof(std::uint64_t));
  std::ranges::copy(beginning.table(), reinterpret_cast<char*>(table_.data()));
  take_entries();
}

void BlockFileReader::take_entries() {
  const std::string file = path().string();
  std::vector<TensorEntry>& entries = header_.entries;
  const auto table = std::ranges::find(entries, kBlockTable, &TensorEntry::name);
  const Shape shape = {static_cast<std::int64_t>(table_.size())};
  check<DataError>(table != entries.end() && table->begin == 0 && table->dtype == DType::Int64 &&
                       table->shape == shape,
                   "{}: the header must begin with the tensor {} of dtype I64 and shape {}", file,
                   kBlockTable, shape);
  check<DataError>(table_.size() == num_blocks_of(data_nbytes_),
                   "{}: block table: it has {} blocks, but {} bytes behind it make {}", file,
                   table_.size(), data_nbytes_, num_blocks_of(data_nbytes_));
  const std::uint64_t table_nbytes = table->nbytes();
  entries.erase(table);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].begin -= table_nbytes;
    entries[i].end -= table_nbytes;
    by_name_.emplace(entries[i].name, i);
  }
}

const TensorEntry* BlockFileReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.entries[found->second];
}

std::uint64_t BlockFileReader::block_end(std::uint64_t index) const {
  return std::min(data_nbytes_, (index + 1) * kBlockBytes);
}

void BlockFileReader::read_block(std::uint64_t index, std::span<std::byte> out) const {
  // Small enough to be in a cache still when its checksum is computed, beside the system's copy.
  constexpr std::size_t kStretch = std::size_t{256} << 10;
  kernels::Checksum64 checksum;
  for (std::size_t begin = 0; begin < out.size(); begin += kStretch) {
    const std::span<std::byte> stretch = out.subspan(begin, std::min(kStretch, out.size() - begin));
    file_->read_at(data_offset_ + block_begin(index) + begin, stretch);
    checksum.append(stretch);
  }
  if (checksum.value() != table_[index]) {
    fail<DataError>("{}: {} has not the digest of the block table: the file is damaged",
                    path().string(), describe_block(index));
  }
}

std::string BlockFileReader::describe_block(std::uint64_t index) const {
  const std::uint64_t begin = block_begin(index);
  const std::uint64_t end = block_end(index);
  std::string names;
  auto entry = std::ranges::upper_bound(header_.entries, begin, {}, &TensorEntry::end);
  for (; entry != header_.entries.end() && entry->begin < end; ++entry) {
    if (entry->nbytes() > 0) {
      names += (names.empty() ? "" : ", ") + shown(entry->name);
    }
  }
  return fmt::format("block {} (bytes {} to {} of the file, with {})", index, data_offset_ + begin,
                     data_offset_ + end, names);
}

std::span<const std::byte> BlockFileReader::Ends::block(const BlockFileReader& reader,
                                                        std::uint64_t index) {
  check(reader_ == nullptr || reader_ == &reader, "{}: the ends of reads are of another reader",
        reader.path().string());
  if (bytes_.empty() || index_ != index) {
    reader_ = &reader;
    index_ = index;
    bytes_.resize(reader.block_end(index) - reader.block_begin(index));
    try {
      reader.read_block(index, bytes_);
    } catch (...) {
      bytes_.clear();
      throw;
    }
  }
  return bytes_;
}

void BlockFileReader::read_blocks(std::uint64_t index, std::span<std::byte> out,
                                  ThreadPool* pool) const {
  const std::uint64_t count = num_blocks_of(out.size());
  const auto read_one = [&](std::uint64_t i) {
    const std::uint64_t begin = i * kBlockBytes;
    read_block(index + i, out.subspan(begin, std::min(kBlockBytes, out.size() - begin)));
  };
  if (pool == nullptr || count < 2) {
    for (std::uint64_t i = 0; i < count; ++i) {
      read_one(i);
    }
    return;
  }
  // What went wrong with each block: of several, the first is thrown, however the threads ran.
  std::vector<std::exception_ptr> failures(count);
  auto try_one = [&](std::size_t i) {
    try {
      read_one(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  pool->run(
      static_cast<std::int64_t>(count),
      [](void* context, std::int64_t i, int /*thread*/) {
        (*static_cast<decltype(try_one)*>(context))(static_cast<std::size_t>(i));
      },
      &try_one);
  const auto failed = std::ranges::find_if(failures, [](const auto& f) { return f != nullptr; });
  if (failed != failures.end()) {
    std::rethrow_exception(*failed);
  }
}

void BlockFileReader::read(std::uint64_t begin, std::span<std::byte> out, Ends& ends,
                           ThreadPool* pool) const {
  check<ShapeError>(begin <= data_nbytes_ && out.size() <= data_nbytes_ - begin,
                    "{}: the data has {} bytes, asked for {} from byte {} on", path().string(),
                    data_nbytes_, out.size(), begin);
  while (!out.empty()) {
    const std::uint64_t index = begin / kBlockBytes;
    const std::uint64_t in_block = begin - block_begin(index);
    std::uint64_t count = std::min<std::uint64_t>(out.size(), block_end(index) - begin);
    if (count == block_end(index) - block_begin(index)) {
      const bool reaches_the_end = out.size() == data_nbytes_ - begin;
      count = reaches_the_end ? out.size() : out.size() / kBlockBytes * kBlockBytes;
      read_blocks(index, out.first(count), pool);
    } else {
      std::memcpy(out.data(), ends.block(*this, index).data() + in_block, count);
    }
    out = out.subspan(count);
    begin += count;
  }
}

void BlockFileReader::verify(const std::function<void(std::uint64_t nbytes)>& each) const {
  // Of those that are described.
  constexpr std::uint64_t kMaxDescribed = 16;
  std::vector<std::byte> buffer(std::min(data_nbytes_, kBlockBytes));
  std::uint64_t num_damaged = 0;
  std::string damaged;
  for (std::uint64_t index = 0; index < table_.size(); ++index) {
    const std::span<std::byte> bytes =
        std::span(buffer).first(block_end(index) - block_begin(index));
    // The buffer stays in a cache: as one piece it is faster.
    file_->read_at(data_offset_ + block_begin(index), bytes);
    if (kernels::checksum64(bytes) != table_[index] && ++num_damaged <= kMaxDescribed) {
      damaged += (damaged.empty() ? "" : "; ") + describe_block(index);
    }
    each(bytes.size());
  }
  check<DataError>(num_damaged == 0,
                   "{}: {} of {} blocks have not the digest of the block table: the file is "
                   "damaged: {}{}",
                   path().string(), num_damaged, table_.size(), damaged,
                   num_damaged > kMaxDescribed ? "; ..." : "");
}

}  // namespace fsdptrain::checkpoint
