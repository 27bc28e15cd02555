#include "checkpoint/load/reader.h"

#include <cstring>
#include <numeric>

#include <doctest/doctest.h>

#include "checkpoint/folder/names.h"
#include "checkpoint/plan/layout_index.h"
#include "checkpoint/save/rank_file.h"
#include "runtime/base/error.h"
#include "tests/support/faulty_files.h"
#include "tests/support/memory_files.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::FaultyFiles;
using testing::MemoryFiles;

const std::filesystem::path kFolder = "/step-00000001";

// A checkpoint of one tensor of float32, whose elements count from 0.
void write_checkpoint(FileSystem& files, const SavedTensor& tensor, std::int64_t part,
                      std::int64_t num_files) {
  Manifest manifest{
      .step = 1,
      .attempt = make_attempt(),
      .num_ranks = num_files,
      .created = "2026-01-01T00:00:00Z",
      .writer = "test",
      .files = {},
      .layout = {.groups = {{.name = "all",
                             .part = part,
                             .planes = {{.name = kParameters, .dtype = DType::Float32}}}},
                 .tensors = {tensor}},
      .objects = {}};
  const LayoutIndex index(manifest.layout);
  const std::int64_t columns = tensor.shape.dims() == 2 ? tensor.shape[1] : 1;
  files.make_folder(kFolder);
  for (std::int64_t file = 0; file < num_files; ++file) {
    const auto pieces = index.pieces_of(file);
    std::vector<std::vector<float>> values;
    for (const HeldPiece& piece : pieces) {
      std::vector<float>& of_piece = values.emplace_back();
      for (std::int64_t i = piece.elements.begin; i < piece.elements.end; ++i) {
        const std::int64_t width = piece.piece == nullptr ? columns : piece.piece->box.size[1];
        const std::int64_t row =
            i / width + (piece.piece == nullptr ? 0 : piece.piece->box.offset[0]);
        const std::int64_t column =
            i % width + (piece.piece == nullptr ? 0 : piece.piece->box.offset[1]);
        of_piece.push_back(static_cast<float>(row * columns + column));
      }
    }
    RankFile out{.path = kFolder / rank_file_name(file),
                 .metadata = {},
                 .specs = index.specs_of(pieces),
                 .values = {}};
    for (const auto& of_piece : values) {
      out.values.push_back(std::as_bytes(std::span(of_piece)));
    }
    manifest.files.push_back(
        {.name = rank_file_name(file), .facts = write_rank_file(files, out, [] {})});
  }
  replace_text(files, kFolder / kManifestName, render_manifest(manifest));
}

// Whether elements [begin, end) are those that count from `begin`.
bool reads_right(CheckpointReader& reader, std::int64_t begin, std::int64_t end) {
  std::vector<float> values(static_cast<std::size_t>(end - begin), -1.0F);
  const CheckpointReader::Want want{.tensor = &reader.manifest().layout.tensors.front(),
                                    .elements = {begin, end},
                                    .out = std::as_writable_bytes(std::span(values))};
  reader.read({&want, 1});
  std::vector<float> expected(values.size());
  std::iota(expected.begin(), expected.end(), static_cast<float>(begin));
  return values == expected;
}

TEST_SUITE("checkpoint/load/reader") {
  TEST_CASE("any range of a tensor that lies in several files is read from those that have it") {
    MemoryFiles files;
    write_checkpoint(
        files, {.name = "w", .shape = {20, 7}, .group = 0, .offset = 5, .pieces = {}, .step = 1},
        16, 10);
    CheckpointReader reader(files, kFolder, CheckpointReader::open(files, kFolder).manifest());
    CHECK(reader.find("w") != nullptr);
    CHECK(reader.find("v") == nullptr);
    for (std::int64_t begin = 0; begin <= 140; begin += 3) {
      for (std::int64_t end = begin; end <= 140; end += 5) {
        CAPTURE(begin);
        CAPTURE(end);
        CHECK(reads_right(reader, begin, end));
      }
    }
    CheckpointReader other(files, kFolder, reader.manifest());
    CHECK(reads_right(other, 30, 50));
    CHECK(other.counts().files == 2);
    CHECK_THROWS_AS(reads_right(reader, 100, 141), ShapeError);
    CHECK_THROWS_AS(reads_right(reader, -1, 3), ShapeError);
  }

  TEST_CASE("any range of a tensor that was saved in boxes is read") {
    MemoryFiles files;
    SavedTensor tensor{
        .name = "w", .shape = {8, 6}, .group = 0, .offset = 0, .pieces = {}, .step = 1};
    for (std::int64_t file = 0; file < 3; ++file) {
      tensor.pieces.push_back(
          {.file = file, .box = {.offset = {0, 2 * file}, .size = {8, 2}}, .in_box = {0, 16}});
    }
    write_checkpoint(files, tensor, 16, 3);
    CheckpointReader reader(files, kFolder, CheckpointReader::open(files, kFolder).manifest());
    for (std::int64_t begin = 0; begin <= 48; ++begin) {
      for (std::int64_t end = begin; end <= 48; ++end) {
        CAPTURE(begin);
        CAPTURE(end);
        CHECK(reads_right(reader, begin, end));
      }
    }
  }

  TEST_CASE("no more is read than the blocks of what is wanted, the header and the table") {
    MemoryFiles files;
    constexpr std::int64_t kNumel = std::int64_t{5} << 20;
    write_checkpoint(
        files, {.name = "w", .shape = {kNumel}, .group = 0, .offset = 0, .pieces = {}, .step = 1},
        kNumel / 2, 2);
    const Manifest manifest = CheckpointReader::open(files, kFolder).manifest();
    for (const std::int64_t numel : {1, 1000, 600'000, 3'000'000}) {
      for (const std::int64_t begin : {0, 123'456, 2'100'000}) {
        CAPTURE(numel);
        CAPTURE(begin);
        FaultyFiles counting(files);
        CheckpointReader reader(counting, kFolder, manifest);
        CHECK(reads_right(reader, begin, begin + numel));
        const std::int64_t num_pieces = begin + numel > kNumel / 2 && begin < kNumel / 2 ? 2 : 1;
        CHECK(reader.counts().pieces == num_pieces);
        CHECK(counting.nbytes_read() <= static_cast<std::uint64_t>(numel) * 4 +
                                            static_cast<std::uint64_t>(num_pieces) * (2 << 20) +
                                            2 * 4096);
      }
    }
  }

  TEST_CASE("a file that is not the manifest's is refused") {
    MemoryFiles files;
    const SavedTensor tensor{
        .name = "w", .shape = {64}, .group = 0, .offset = 0, .pieces = {}, .step = 1};
    write_checkpoint(files, tensor, 32, 2);
    const Manifest manifest = CheckpointReader::open(files, kFolder).manifest();
    const auto path = [](std::int64_t file) { return kFolder / rank_file_name(file); };
    files.rename(path(0), kFolder / "kept");
    files.rename(path(1), path(0));
    CheckpointReader reader(files, kFolder, manifest);
    CHECK_THROWS_WITH_AS(reads_right(reader, 0, 10), doctest::Contains("rank-00000.safetensors"),
                         DataError);
    CHECK_THROWS_WITH_AS(reads_right(reader, 40, 50), doctest::Contains("rank-00001.safetensors"),
                         DataError);
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
