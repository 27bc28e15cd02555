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

// A piece of one file with something of a want in it.
struct CheckpointReader::Source {
  // In the file.
  std::string name;
  ReadPiece piece;
  // From elements of the piece to elements of `out`.
  std::vector<Run> runs;
  DType dtype = DType::Float32;
  std::span<std::byte> out;
  // Behind its lookup: where what is read begins in the file.
  std::uint64_t begin = 0;

  std::size_t nbytes_of(std::int64_t numel) const {
    return static_cast<std::size_t>(numel) * size_of(dtype);
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
                                   Manifest manifest, ThreadPool* pool)
    : files_(files),
      folder_(std::move(folder)),
      manifest_(std::move(manifest)),
      pool_(pool),
      planner_(manifest_.layout) {
  for (std::size_t i = 0; i < manifest_.layout.tensors.size(); ++i) {
    by_name_[manifest_.layout.tensors[i].name] = i;
  }
}

CheckpointReader CheckpointReader::open(FileSystem& files, const std::filesystem::path& folder) {
  return CheckpointReader(files, folder, look_at(files, folder).manifest);
}

CheckpointReader::~CheckpointReader() = default;

const SavedTensor* CheckpointReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &manifest_.layout.tensors[found->second];
}

void CheckpointReader::read(std::span<const Want> wants) {
  std::vector<Source> sources;
  for (const Want& want : wants) {
    add_sources(sources, want);
  }
  const auto file_of_source = [](const Source& source) { return source.piece.saved.file; };
  std::ranges::stable_sort(sources, {}, file_of_source);
  for (auto begin = sources.begin(); begin != sources.end();) {
    const auto end = std::find_if(begin, sources.end(), [&](const Source& source) {
      return file_of_source(source) != file_of_source(*begin);
    });
    read_from(file_of_source(*begin), {begin, end});
    begin = end;
  }
}

void CheckpointReader::add_sources(std::vector<Source>& sources, const Want& want) const {
  const SavedTensor& tensor = *want.tensor;
  const SavedPlane* const plane = find_plane(group_of(manifest_.layout, tensor), want.plane);
  check<DataError>(plane != nullptr, "{}: {} has no {}", folder_.string(), tensor.name, want.plane);
  check<ShapeError>(
      want.out.size() == static_cast<std::size_t>(want.elements.size()) * size_of(plane->dtype),
      "{}: elements [{}, {}) of {} as {} do not fit into {} bytes", folder_.string(),
      want.elements.begin, want.elements.end, tensor.name, plane->dtype, want.out.size());
  const WantedPart wanted = wanted_range(tensor.shape, want.elements);
  ReadPlan plan = planner_.plan(by_name_.find(tensor.name)->second, wanted);
  for (ReadPiece& piece : plan.pieces) {
    sources.push_back({.name = read_piece_name(plane->name, tensor, piece),
                       .piece = piece,
                       .runs = runs_of(piece, wanted),
                       .dtype = plane->dtype,
                       .out = want.out});
  }
}

void CheckpointReader::read_from(std::int64_t file, std::span<Source> sources) {
  OpenFile& open = file_of(file);
  for (Source& source : sources) {
    const TensorEntry* const entry = open.reader.find(source.name);
    const std::size_t nbytes = source.nbytes_of(source.piece.saved.in_box.size());
    check<DataError>(entry != nullptr && entry->dtype == source.dtype && entry->nbytes() == nbytes,
                     "{}: {} is not there as {} with {} bytes, which the manifest wants",
                     open.reader.path().string(), source.name, source.dtype, nbytes);
    source.begin = entry->begin + source.nbytes_of(source.piece.span.begin);
  }
  std::ranges::sort(sources, {}, &Source::begin);
  for (const Source& source : sources) {
    read_source(open, source);
    ++counts_.pieces;
  }
}

void CheckpointReader::read_source(OpenFile& file, const Source& source) {
  const std::size_t nbytes = source.nbytes_of(source.piece.span.size());
  if (source.runs.size() == 1) {
    const std::size_t to = source.nbytes_of(source.runs.front().to);
    file.reader.read(source.begin, source.out.subspan(to, nbytes), file.ends, pool_);
    return;
  }
  std::vector<std::byte> span(nbytes);
  file.reader.read(source.begin, span, file.ends, pool_);
  for (const Run& run : source.runs) {
    const std::size_t from = source.nbytes_of(run.from - source.piece.span.begin);
    std::ranges::copy(std::span(span).subspan(from, source.nbytes_of(run.count)),
                      source.out.subspan(source.nbytes_of(run.to)).begin());
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
