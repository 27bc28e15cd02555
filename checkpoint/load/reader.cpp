#include "checkpoint/load/reader.h"

#include <algorithm>
#include <utility>

#include "checkpoint/folder/scan.h"
#include "runtime/base/error.h"

namespace fsdptrain::checkpoint {
namespace {

// Of files that stay open for the next read().
constexpr std::size_t kMaxOpenFiles = 16;

}  // namespace

// A part of a want that one piece of one file has.
struct CheckpointReader::Source {
  std::int64_t file = 0;
  // In the file.
  std::string piece;
  // Elements of the piece, in its tensor.
  kernels::Range in_tensor;
  // Of those, the wanted ones.
  kernels::Range wanted;
  DType dtype = DType::Float32;
  std::span<std::byte> out;
  const TensorEntry* entry = nullptr;

  std::uint64_t begin() const {
    return entry->begin +
           static_cast<std::uint64_t>(wanted.begin - in_tensor.begin) * size_of(dtype);
  }
};

struct CheckpointReader::OpenFile {
  OpenFile(std::int64_t file_number, FileSystem& files, const std::filesystem::path& path,
           const FileFacts& facts)
      : number(file_number), reader(files, path, facts) {}

  std::int64_t number;
  BlockFileReader reader;
  BlockFileReader::Ends ends;
};

CheckpointReader::CheckpointReader(FileSystem& files, std::filesystem::path folder,
                                   Manifest manifest)
    : files_(files), folder_(std::move(folder)), manifest_(std::move(manifest)) {
  for (std::size_t i = 0; i < manifest_.layout.tensors.size(); ++i) {
    by_name_[manifest_.layout.tensors[i].name] = i;
  }
}

CheckpointReader CheckpointReader::open(FileSystem& files, const std::filesystem::path& folder) {
  return {files, folder, look_at(files, folder).manifest};
}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

const SavedTensor* CheckpointReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &manifest_.layout.tensors[found->second];
}

const SavedPlane* CheckpointReader::find_plane(const SavedTensor& tensor,
                                               std::string_view plane) const {
  const auto& planes = manifest_.layout.groups[static_cast<std::size_t>(tensor.group)].planes;
  const auto found = std::ranges::find(planes, plane, &SavedPlane::name);
  return found == planes.end() ? nullptr : &*found;
}

void CheckpointReader::read(std::span<const Want> wants) {
  std::vector<Source> sources;
  for (const Want& want : wants) {
    add_sources(sources, want);
  }
  std::ranges::stable_sort(sources, {}, &Source::file);
  for (auto begin = sources.begin(); begin != sources.end();) {
    const auto end = std::find_if(begin, sources.end(),
                                  [&](const Source& source) { return source.file != begin->file; });
    read_from(begin->file, {begin, end});
    begin = end;
  }
}

void CheckpointReader::add_sources(std::vector<Source>& sources, const Want& want) const {
  const SavedTensor& tensor = *want.tensor;
  const SavedPlane* const plane = find_plane(tensor, want.plane);
  check<DataError>(plane != nullptr, "{}: {} has no {}", folder_.string(), tensor.name, want.plane);
  const std::size_t element = size_of(plane->dtype);
  check<ShapeError>(want.elements.begin >= 0 && want.elements.size() >= 0 &&
                        want.elements.end <= tensor.shape.numel() &&
                        want.out.size() == static_cast<std::size_t>(want.elements.size()) * element,
                    "{}: elements [{}, {}) of {} with {} into {} bytes", folder_.string(),
                    want.elements.begin, want.elements.end, tensor.name, tensor.shape,
                    want.out.size());
  const std::int64_t part = manifest_.layout.groups[static_cast<std::size_t>(tensor.group)].part;
  for (std::int64_t begin = want.elements.begin; begin < want.elements.end;) {
    const std::int64_t file = (tensor.offset + begin) / part;
    const kernels::Range piece{std::max(file * part - tensor.offset, std::int64_t{0}),
                               std::min((file + 1) * part - tensor.offset, tensor.shape.numel())};
    const kernels::Range wanted{begin, std::min(piece.end, want.elements.end)};
    sources.push_back({.file = file,
                       .piece = piece_name(plane->name, tensor, piece.begin, piece.end),
                       .in_tensor = piece,
                       .wanted = wanted,
                       .dtype = plane->dtype,
                       .out = want.out.subspan(
                           static_cast<std::size_t>(wanted.begin - want.elements.begin) * element,
                           static_cast<std::size_t>(wanted.size()) * element)});
    begin = wanted.end;
  }
}

void CheckpointReader::read_from(std::int64_t file, std::span<Source> sources) {
  OpenFile& open = file_of(file);
  for (Source& source : sources) {
    source.entry = open.reader.find(source.piece);
    const auto nbytes = static_cast<std::uint64_t>(source.in_tensor.size()) * size_of(source.dtype);
    check<DataError>(source.entry != nullptr && source.entry->dtype == source.dtype &&
                         source.entry->nbytes() == nbytes,
                     "{}: {} is not there as {} with {} bytes, which the manifest wants",
                     open.reader.path().string(), source.piece, source.dtype, nbytes);
  }
  std::ranges::sort(sources, {}, &Source::begin);
  for (const Source& source : sources) {
    open.reader.read(source.begin(), source.out, open.ends);
    ++counts_.pieces;
  }
}

CheckpointReader::OpenFile& CheckpointReader::file_of(std::int64_t file) {
  const auto found = std::ranges::find(open_, file, &OpenFile::number);
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return open_.front();
  }
  if (open_.size() == kMaxOpenFiles) {
    open_.pop_back();
  }
  const SavedFile& saved = manifest_.files[static_cast<std::size_t>(file)];
  open_.emplace_front(file, files_, folder_ / saved.name, saved.facts);
  ++counts_.files;
  return open_.front();
}

}  // namespace fsdptrain::checkpoint
