#include "checkpoint/convert/reshard.h"

#include <doctest/doctest.h>

#include "checkpoint/convert/verify.h"
#include "checkpoint/folder/names.h"
#include "runtime/base/error.h"
#include "tests/support/file_bytes.h"
#include "tests/support/fixture_checkpoint.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::FixtureCheckpoint;

void without_objects_per_rank(Manifest& manifest) {
  manifest.objects.erase("sampler");
}

std::filesystem::path reshard_to(FixtureCheckpoint& fixture, std::int64_t num_ranks) {
  CheckpointReader source = fixture.open();
  return reshard(fixture.files, source, "/out", num_ranks, [](std::uint64_t) {});
}

std::vector<std::byte> read_whole(CheckpointReader& reader, const SavedTensor& tensor,
                                  const SavedPlane& plane) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.shape.numel()) *
                               size_of(plane.dtype));
  const CheckpointReader::Want want{
      .tensor = &tensor, .plane = plane.name, .elements = {0, tensor.shape.numel()}, .out = bytes};
  reader.read({&want, 1});
  return bytes;
}

void check_values(CheckpointReader& reader) {
  const SavedLayout& layout = reader.manifest().layout;
  REQUIRE(layout.tensors.size() == testing::fixture_layout().tensors.size());
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const SavedTensor& tensor = layout.tensors[i];
    CAPTURE(tensor.name);
    const auto& planes = layout.groups[static_cast<std::size_t>(tensor.group)].planes;
    for (std::size_t plane = 0; plane < planes.size(); ++plane) {
      CAPTURE(planes[plane].name);
      CHECK(read_whole(reader, tensor, planes[plane]) == testing::fixture_values(i, plane));
    }
  }
}

bool is_left_in(FileSystem& files, const std::filesystem::path& folder) {
  return files.kind_of(folder) && !files.list(folder).empty();
}

TEST_SUITE("checkpoint/convert/reshard") {
  TEST_CASE("any number of files has every bit, also of what was saved in boxes") {
    for (const std::int64_t num_ranks : {1, 2, 3, 4, 7, 40}) {
      CAPTURE(num_ranks);
      FixtureCheckpoint fixture(without_objects_per_rank);
      const std::filesystem::path path = reshard_to(fixture, num_ranks);
      CHECK(path == "/out/step-00000020");
      CheckpointReader reader = CheckpointReader::open(fixture.files, path);
      check_values(reader);
      CHECK(reader.manifest().files.size() == static_cast<std::size_t>(num_ranks));
      CHECK(verify(fixture.files, look_at(fixture.files, path), [](std::uint64_t) {}).empty());
    }
  }

  TEST_CASE("all else that a manifest says stays, but for the attempt") {
    FixtureCheckpoint fixture(without_objects_per_rank);
    const Manifest before = fixture.look().manifest;
    const Manifest after = look_at(fixture.files, reshard_to(fixture, 5)).manifest;
    CHECK(after.num_ranks == 5);
    CHECK(after.step == before.step);
    CHECK(after.created == before.created);
    CHECK(after.writer == before.writer);
    CHECK(after.attempt != before.attempt);
    CHECK(after.objects == before.objects);
    for (std::size_t i = 0; i < before.layout.tensors.size(); ++i) {
      const SavedTensor& tensor = after.layout.tensors[i];
      CHECK(tensor.name == before.layout.tensors[i].name);
      CHECK(tensor.shape == before.layout.tensors[i].shape);
      CHECK(tensor.step == before.layout.tensors[i].step);
      CHECK(tensor.pieces.empty());
    }
  }

  TEST_CASE("progress adds up to the bytes of all values") {
    FixtureCheckpoint fixture(without_objects_per_rank);
    CheckpointReader source = fixture.open();
    std::uint64_t done = 0;
    reshard(fixture.files, source, "/out", 3, [&](std::uint64_t nbytes) { done += nbytes; });
    // 99 + 15 + 1 elements of 18 bytes, and 60 + 40 of 2.
    CHECK(done == 115 * 18 + 100 * 2);
    CHECK(values_nbytes(source.manifest().layout) == done);
  }

  TEST_CASE("objects of each rank go to as many ranks, and to no other number") {
    FixtureCheckpoint fixture;
    for (const std::int64_t num_ranks : {1, 2, 4}) {
      CHECK_THROWS_WITH_AS(reshard_to(fixture, num_ranks),
                           doctest::Contains("object 'sampler' is of 3 ranks"), ConfigError);
    }
    CHECK(!fixture.files.kind_of("/out"));
    const Manifest same = look_at(fixture.files, reshard_to(fixture, 3)).manifest;
    CHECK(same.objects == fixture.look().manifest.objects);
  }

  TEST_CASE("a step that is there already is not replaced") {
    FixtureCheckpoint fixture(without_objects_per_rank);
    const std::filesystem::path path = reshard_to(fixture, 2);
    const std::string manifest = testing::file_text(fixture.files, path / kManifestName);
    CHECK_THROWS_WITH_AS(reshard_to(fixture, 3), doctest::Contains("/out/step-00000020: is there"),
                         ConfigError);
    CHECK(testing::file_text(fixture.files, path / kManifestName) == manifest);
  }

  TEST_CASE("what comes to no end leaves nothing") {
    FixtureCheckpoint fixture(without_objects_per_rank);
    CheckpointReader source = fixture.open();
    const auto stop = [](std::uint64_t) { fail<IoError>("stopped"); };
    CHECK_THROWS_WITH_AS(reshard(fixture.files, source, "/out", 2, stop),
                         doctest::Contains("stopped"), IoError);
    CHECK(!fixture.files.kind_of("/out/step-00000020"));
    CHECK(!is_left_in(fixture.files, std::filesystem::path("/out") / kStagingFolder));
    CHECK(!is_left_in(fixture.files, std::filesystem::path("/out") / kTrashFolder));
    reshard_to(fixture, 2);
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
