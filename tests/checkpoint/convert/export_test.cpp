#include "checkpoint/convert/export.h"

#include <doctest/doctest.h>

#include "checkpoint/safetensors/file.h"
#include "runtime/base/error.h"
#include "tests/support/fixture_checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::FixtureCheckpoint;
using testing::TemporaryFolder;

Exported export_to(const std::filesystem::path& path, const ExportOptions& options) {
  FixtureCheckpoint fixture;
  CheckpointReader source = fixture.open();
  std::uint64_t done = 0;
  Exported exported =
      export_model(source, path, options, [&](std::uint64_t nbytes) { done += nbytes; });
  CHECK(done == export_nbytes(source, options));
  return exported;
}

std::vector<std::byte> bytes_in(const SafetensorsReader& reader, const std::string& name) {
  const TensorEntry& entry = reader.find(name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
  reader.read(entry, bytes);
  return bytes;
}

TEST_SUITE("checkpoint/convert/export") {
  TEST_CASE("a file has the parameters with their dtypes, also those saved in boxes") {
    const TemporaryFolder folder;
    const Exported exported = export_to(folder / "out", {.metadata = {{"key", "value"}}});
    CHECK(exported.files == std::vector{folder / "out"});
    CHECK(exported.nbytes == 115 * 4 + 100 * 2);
    const SafetensorsReader reader(folder / "out");
    CHECK(reader.metadata().at("key") == "value");
    const SavedLayout layout = testing::fixture_layout();
    REQUIRE(reader.entries().size() == layout.tensors.size());
    for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
      const SavedTensor& tensor = layout.tensors[i];
      CAPTURE(tensor.name);
      CHECK(reader.find(tensor.name).shape == tensor.shape);
      CHECK(reader.find(tensor.name).dtype ==
            layout.groups[static_cast<std::size_t>(tensor.group)].planes[0].dtype);
      CHECK(bytes_in(reader, tensor.name) == testing::fixture_values(i, 0));
    }
    CHECK(folder.num_files() == 1);
  }

  TEST_CASE("of another plane, those without it have their parameters") {
    const TemporaryFolder folder;
    export_to(folder / "out", {.plane = "average"});
    const SafetensorsReader reader(folder / "out");
    CHECK(reader.find("head.weight").dtype == DType::Float64);
    CHECK(bytes_in(reader, "head.weight") == testing::fixture_values(1, 3));
    CHECK(bytes_in(reader, "layers.0.wide.weight") == testing::fixture_values(4, 0));
    CHECK(bytes_in(reader, "layers.0.norm.weight") == testing::fixture_values(5, 0));
  }

  TEST_CASE("a wider dtype loses no bit") {
    const TemporaryFolder folder;
    const Exported exported = export_to(folder / "out", {.dtype = DType::Float32});
    CHECK(exported.nbytes == 215 * 4);
    const SafetensorsReader reader(folder / "out");
    CHECK(reader.find("layers.0.wide.weight").dtype == DType::Float32);
    CHECK(bytes_in(reader, "embedding.weight") == testing::fixture_values(0, 0));
  }

  TEST_CASE("an unknown plane is refused with those there are, and nothing is written") {
    const TemporaryFolder folder;
    CHECK_THROWS_WITH_AS(
        export_to(folder / "out", {.plane = "nothing"}),
        doctest::Contains("'nothing': give one of average, exp_avg, exp_avg_sq, parameters"),
        ConfigError);
    CHECK(folder.num_files() == 0);
  }

  TEST_CASE("files are filled in the model's order, and a tensor that is larger has its own") {
    const TemporaryFolder folder;
    // 396, 60, 4, 0, 120 and 80 bytes.
    const Exported exported = export_to(folder / "out", {.max_file_nbytes = 124});
    REQUIRE(exported.files.size() == 5);
    const std::vector<std::vector<std::string>> expected = {{"embedding.weight"},
                                                            {"head.weight", "nothing", "scale"},
                                                            {"layers.0.wide.weight"},
                                                            {"layers.0.norm.weight"}};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      const SafetensorsReader reader(exported.files[i]);
      CHECK(reader.entries().size() == expected[i].size());
      for (const std::string& name : expected[i]) {
        CHECK(reader.contains(name));
      }
    }
    CHECK(exported.files[0].filename() == "model-00001-of-00004.safetensors");
    CHECK(exported.files[4].filename() == "model.safetensors.index.json");
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
