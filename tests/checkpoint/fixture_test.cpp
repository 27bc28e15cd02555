#include <algorithm>

#include <doctest/doctest.h>

#include "checkpoint/plan/read_plan.h"
#include "runtime/base/error.h"
#include "tests/support/file_bytes.h"
#include "tests/support/format_fixture.h"
#include "tests/support/memory_files.h"
#include "tests/support/random_layout.h"

// Every version of the format that was released has a fixture that must load, whatever the planner
// of this program would do with the same model.
namespace fsdptrain::checkpoint {
namespace {

namespace fs = std::filesystem;

fs::path committed() {
  return fs::path(FSDPTRAIN_CHECKPOINT_FIXTURES) / "version-1" / testing::kFixtureFolder;
}

Manifest committed_manifest(FileSystem& files) {
  const fs::path path = committed() / kManifestName;
  return parse_manifest(path.string(), read_text(files, path, kMaxManifestBytes));
}

// As a reader does who knows the manifest alone.
std::vector<std::byte> read_part(FileSystem& files, const Manifest& manifest, std::size_t tensor,
                                 std::size_t plane, const WantedPart& wanted) {
  const SavedTensor& saved = manifest.layout.tensors[tensor];
  const SavedPlane& of =
      manifest.layout.groups[static_cast<std::size_t>(saved.group)].planes[plane];
  const std::size_t width = size_of(of.dtype);
  std::vector<std::byte> out(static_cast<std::size_t>(wanted.in_box.size()) * width);
  for (const ReadPiece& piece : ReadPlanner(manifest.layout).plan(tensor, wanted).pieces) {
    const SavedFile& file = manifest.files[static_cast<std::size_t>(piece.saved.file)];
    const BlockFileReader reader(files, committed() / file.name, file.facts);
    const TensorEntry* const entry = reader.find(read_piece_name(of.name, saved, piece));
    REQUIRE(entry != nullptr);
    CHECK(entry->dtype == of.dtype);
    BlockFileReader::Ends ends;
    for (const Run& run : runs_of(piece, wanted)) {
      reader.read(entry->begin + static_cast<std::uint64_t>(run.from) * width,
                  std::span(out).subspan(static_cast<std::size_t>(run.to) * width,
                                         static_cast<std::size_t>(run.count) * width),
                  ends);
    }
  }
  return out;
}

std::vector<std::byte> expected_part(std::size_t tensor, std::size_t plane, std::size_t width,
                                     const Shape& shape, const WantedPart& wanted) {
  const std::vector<std::byte> values = testing::fixture_values(tensor, plane);
  std::vector<std::byte> out;
  for (std::int64_t i = wanted.in_box.begin; i < wanted.in_box.end; ++i) {
    const std::int64_t index = testing::index_in_tensor(shape, wanted.box, i);
    const auto begin = values.begin() + index * static_cast<std::ptrdiff_t>(width);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return out;
}

void check_read(FileSystem& files, const Manifest& manifest, std::size_t tensor,
                const WantedPart& wanted) {
  const SavedTensor& saved = manifest.layout.tensors[tensor];
  const auto& planes = manifest.layout.groups[static_cast<std::size_t>(saved.group)].planes;
  for (std::size_t plane = 0; plane < planes.size(); ++plane) {
    CAPTURE(saved.name);
    CAPTURE(plane);
    CHECK(read_part(files, manifest, tensor, plane, wanted) ==
          expected_part(tensor, plane, size_of(planes[plane].dtype), saved.shape, wanted));
  }
}

}  // namespace

TEST_SUITE("checkpoint/fixture") {
  TEST_CASE("this program writes version 1 byte for byte as the committed fixture") {
    const auto real = make_real_file_system();
    testing::MemoryFiles files;
    testing::write_fixture(files, "/");
    const fs::path written = fs::path("/") / testing::kFixtureFolder;
    const std::vector<FolderEntry> entries = real->list(committed());
    CHECK(entries.size() == 4);
    for (const FolderEntry& entry : entries) {
      CAPTURE(entry.name);
      CHECK(testing::file_text(files, written / entry.name) ==
            testing::file_text(*real, committed() / entry.name));
    }
  }

  TEST_CASE("blocks, table and digest of a file of three blocks are frozen") {
    testing::MemoryFiles files;
    BlockFileWriter writer(files, "/file", {},
                           {{.name = "a/b", .dtype = DType::UInt8, .shape = {2'500'000}}});
    std::vector<std::byte> bytes(2'500'000);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(i * i % 251);
    }
    writer.append(bytes);
    const FileFacts facts = writer.finish();
    CHECK(facts.nbytes == 2'500'240);
    CHECK(to_string(facts.digest) == "8a1491cb7fcf8d8fd2ec8342cdb0750b");
  }

  TEST_CASE("the fixture of version 1 is read, with all that its manifest says") {
    const auto files = make_real_file_system();
    const Manifest manifest = committed_manifest(*files);
    CHECK(manifest.step == 20);
    CHECK(manifest.num_ranks == 3);
    CHECK(manifest.writer == "fsdptrain 0.1.0");
    CHECK(manifest.layout == testing::fixture_layout());
    CHECK(manifest.objects.at("schedule").values[0].at("peak") == 0.0003);
    CHECK(manifest.objects.at("sampler").values[1] == "\xc3\xa9\n");
    for (const SavedFile& file : manifest.files) {
      const BlockFileReader reader(*files, committed() / file.name, file.facts);
      CHECK(reader.metadata().at("attempt") == manifest.attempt);
      CHECK(reader.metadata().at("step") == "20");
      reader.verify([](std::uint64_t) {});
    }
  }

  TEST_CASE(
      "the fixture of version 1 is read by any layout, also of planners that do not exist yet") {
    const auto files = make_real_file_system();
    const Manifest manifest = committed_manifest(*files);
    for (std::size_t tensor = 0; tensor < manifest.layout.tensors.size(); ++tensor) {
      const Shape& shape = manifest.layout.tensors[tensor].shape;
      check_read(*files, manifest, tensor, wanted_range(shape, {0, shape.numel()}));
      // Parts of other sizes than those that were saved.
      for (const std::int64_t part : {7, 13, 29}) {
        for (std::int64_t begin = 0; begin < shape.numel(); begin += part) {
          check_read(*files, manifest, tensor,
                     wanted_range(shape, {begin, std::min(begin + part, shape.numel())}));
        }
      }
      for (std::uint64_t seed = 0; shape.numel() > 0 && seed < 20; ++seed) {
        testing::Draws draws(seed);
        check_read(*files, manifest, tensor, testing::random_part(draws, shape));
      }
    }
  }
}

}  // namespace fsdptrain::checkpoint
