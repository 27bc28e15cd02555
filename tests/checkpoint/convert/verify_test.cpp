#include "checkpoint/convert/verify.h"

#include <doctest/doctest.h>

#include "tests/support/file_bytes.h"
#include "tests/support/fixture_checkpoint.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::FixtureCheckpoint;

std::vector<std::string> problems_of(FixtureCheckpoint& fixture) {
  return verify(fixture.files, fixture.look(), [](std::uint64_t) {});
}

// What the first file says of a manifest that is right in itself.
std::string problem_with(const std::function<void(Manifest&)>& change) {
  FixtureCheckpoint fixture(change);
  const std::vector<std::string> problems = problems_of(fixture);
  REQUIRE(!problems.empty());
  return problems.front();
}

void flip(FixtureCheckpoint& fixture, const std::string& name, std::size_t from_end) {
  const std::filesystem::path path = fixture.folder / name;
  std::string text = testing::file_text(fixture.files, path);
  char& byte = text[text.size() - from_end];
  byte = static_cast<char>(byte ^ 1);
  testing::put_file(fixture.files, path, text);
}

TEST_SUITE("checkpoint/convert/verify") {
  TEST_CASE("a whole checkpoint has no problem, and all of its values are read") {
    FixtureCheckpoint fixture;
    std::uint64_t done = 0;
    CHECK(verify(fixture.files, fixture.look(), [&](std::uint64_t nbytes) {
            done += nbytes;
          }).empty());
    // 99 + 15 + 1 elements of 18 bytes, and 60 + 40 of 2.
    CHECK(done == 115 * 18 + 100 * 2);
  }

  TEST_CASE("a tensor in a file is another than the manifest has") {
    // It lies in one file alone: of others a file has a range of elements.
    const std::string shape = problem_with([](Manifest& manifest) {
      manifest.layout.tensors[1].shape = {3, 5};
    });
    CHECK_MESSAGE(shape.find("parameters/head.weight") != std::string::npos, shape);
    CHECK_MESSAGE(shape.find("[5, 3] where the manifest has") != std::string::npos, shape);
    const std::string dtype = problem_with(
        [](Manifest& manifest) { manifest.layout.groups[0].planes[1].dtype = DType::Float16; });
    CHECK_MESSAGE(dtype.find("exp_avg/embedding.weight") != std::string::npos, dtype);
    CHECK_MESSAGE(dtype.find("bfloat16") != std::string::npos, dtype);
    const std::string name =
        problem_with([](Manifest& manifest) { manifest.layout.groups[0].planes[3].name = "mean"; });
    CHECK_MESSAGE(name.find("mean/embedding.weight") != std::string::npos, name);
  }

  TEST_CASE("a file has more or fewer tensors than the manifest") {
    const std::string fewer = problem_with([](Manifest& manifest) {
      manifest.layout.tensors.erase(manifest.layout.tensors.begin() + 5);
    });
    CHECK_MESSAGE(fewer.find("tensors where the manifest has") != std::string::npos, fewer);
    const std::string more = problem_with([](Manifest& manifest) {
      SavedTensor tensor = manifest.layout.tensors[2];
      tensor.name = "more";
      tensor.offset = 105;
      manifest.layout.tensors.push_back(tensor);
    });
    CHECK_MESSAGE(more.find("tensors where the manifest has") != std::string::npos, more);
  }

  TEST_CASE("each damaged file has a text that names it") {
    FixtureCheckpoint fixture;
    flip(fixture, "rank-00000.safetensors", 1);
    flip(fixture, "rank-00002.safetensors", 1);
    const std::vector<std::string> problems = problems_of(fixture);
    REQUIRE(problems.size() == 2);
    CHECK(problems[0].find("rank-00000.safetensors") != std::string::npos);
    CHECK(problems[1].find("rank-00002.safetensors") != std::string::npos);
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
