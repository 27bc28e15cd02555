#include "checkpoint/safetensors/file.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "runtime/base/edit_distance.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::checkpoint {
namespace {

using NameIndex = std::map<std::string, std::size_t, std::less<>>;

// The three names in `index` most like `name`, for a message.
std::string nearest_names(const NameIndex& index, std::string_view name) {
  constexpr std::size_t kNumShown = 3;
  // Longer names are compared by their beginning: the work per name stays small.
  constexpr std::size_t kMaxCompared = 200;
  std::vector<std::pair<std::size_t, std::string_view>> candidates;
  for (const auto& [candidate, position] : index) {
    const std::string_view text = candidate;
    candidates.emplace_back(
        edit_distance(text.substr(0, kMaxCompared), name.substr(0, kMaxCompared)), text);
  }
  const std::size_t count = std::min(kNumShown, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                    candidates.end());
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += (i == 0 ? "" : ", ") + shown(candidates[i].second);
  }
  return text;
}

std::size_t position_of(const std::string& file, const NameIndex& index, std::string_view name) {
  const auto found = index.find(name);
  check<DataError>(found != index.end(), "{}: there is no tensor {}; nearest of its {} names: {}",
                   file, shown(name), index.size(),
                   found == index.end() ? nearest_names(index, name) : "");
  return found->second;
}

NameIndex index_by_name(const std::vector<TensorEntry>& entries) {
  NameIndex index;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    index.emplace(entries[i].name, i);
  }
  return index;
}

std::string read_header_text(const File& file) {
  const std::uint64_t file_nbytes = file.size();
  const std::string path = file.path().string();
  check_has_length(path, file_nbytes);
  std::array<std::byte, kHeaderLengthBytes> length{};
  check<DataError>(file.read_at(0, length) == length.size(),
                   "{}: the file was cut while it was read", path);
  std::string text(parse_header_length(path, file_nbytes, length), '\0');
  check<DataError>(
      file.read_at(kHeaderLengthBytes, std::as_writable_bytes(std::span(text))) == text.size(),
      "{}: the file was cut while it was read", path);
  return text;
}

// Wide elements come first, so that every tensor is aligned to its element.
std::vector<TensorEntry> lay_out(const std::string& file, std::vector<TensorSpec> tensors) {
  std::ranges::stable_sort(tensors, [](const TensorSpec& a, const TensorSpec& b) {
    const std::size_t width_a = size_of(a.dtype);
    const std::size_t width_b = size_of(b.dtype);
    return std::tie(width_b, a.name) < std::tie(width_a, b.name);
  });
  return place_tensors(file, tensors);
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : file_(File::open_for_reading(path)) {
  const std::string text = read_header_text(file_);
  data_offset_ = kHeaderLengthBytes + text.size();
  header_ = parse_safetensors_header(path.string(), text, file_.size() - data_offset_);
  by_name_ = index_by_name(header_.entries);
}

const TensorEntry& SafetensorsReader::find(std::string_view name) const {
  return header_.entries[position_of(path().string(), by_name_, name)];
}

void SafetensorsReader::read(const TensorEntry& entry, std::span<std::byte> out) const {
  check<ShapeError>(out.size() == entry.nbytes(), "{}: tensor {} has {} bytes, got room for {}",
                    path().string(), shown(entry.name), entry.nbytes(), out.size());
  read_part(entry, 0, out);
}

void SafetensorsReader::read_part(const TensorEntry& entry, std::uint64_t offset,
                                  std::span<std::byte> out) const {
  check<ShapeError>(offset <= entry.nbytes() && out.size() <= entry.nbytes() - offset,
                    "{}: tensor {} has {} bytes, asked for {} from byte {} on", path().string(),
                    shown(entry.name), entry.nbytes(), out.size(), offset);
  const std::size_t count = file_.read_at(data_offset_ + entry.begin + offset, out);
  check<DataError>(
      count == out.size(),
      "{}: tensor {}: {} bytes are asked for, got {}: the file was cut after it was opened",
      path().string(), shown(entry.name), out.size(), count);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::map<std::string, std::string> metadata,
                                     const std::vector<TensorSpec>& tensors)
    : header_{.metadata = std::move(metadata), .entries = lay_out(path.string(), tensors)},
      by_name_(index_by_name(header_.entries)),
      written_(header_.entries.size(), false),
      file_(path) {
  const std::string text = render_file_beginning(path.string(), header_);
  file_.write_at(0, std::as_bytes(std::span(text)));
  data_offset_ = text.size();
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const std::size_t position = position_of(file_.path().string(), by_name_, name);
  const TensorEntry& entry = header_.entries[position];
  check<ShapeError>(bytes.size() == entry.nbytes(), "{}: tensor {} has {} bytes, got {}",
                    file_.path().string(), shown(name), entry.nbytes(), bytes.size());
  check(!written_[position], "{}: tensor {} is written twice", file_.path().string(), shown(name));
  file_.write_at(data_offset_ + entry.begin, bytes);
  written_[position] = true;
}

void SafetensorsWriter::commit() {
  for (std::size_t i = 0; i < written_.size(); ++i) {
    check(written_[i] || header_.entries[i].nbytes() == 0, "{}: tensor {} has not been written",
          file_.path().string(), shown(header_.entries[i].name));
  }
  file_.commit();
}

}  // namespace fsdptrain::checkpoint
