#include "checkpoint/convert/compare.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "checkpoint/convert/reshard.h"
#include "checkpoint/plan/layout_index.h"
#include "checkpoint/save/rank_file.h"
#include "runtime/base/half.h"
#include "tests/support/fixture_checkpoint.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::FixtureCheckpoint;
using testing::MemoryFiles;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A checkpoint of one file and one tensor, "w".
template <class T>
CheckpointReader write(MemoryFiles& files, const std::filesystem::path& folder, DType dtype,
                       const std::vector<T>& values) {
  const auto numel = static_cast<std::int64_t>(values.size());
  Manifest manifest;
  manifest.step = 1;
  manifest.attempt = "00112233445566778899aabbccddeeff";
  manifest.created = "2026-11-30T22:00:00Z";
  manifest.writer = "test";
  manifest.layout = {
      .groups = {{.name = "all", .part = numel, .planes = {{kParameters, dtype}}}},
      .tensors = {
          {.name = "w", .shape = {numel}, .group = 0, .offset = 0, .pieces = {}, .step = 1}}};
  const LayoutIndex index(manifest.layout);
  files.make_folder(folder);
  const RankFile file{.path = folder / rank_file_name(0),
                      .metadata = {},
                      .specs = index.specs_of(index.pieces_of(0)),
                      .values = {std::as_bytes(std::span(values))}};
  manifest.files = {{rank_file_name(0), write_rank_file(files, file, [] {})}};
  replace_text(files, folder / kManifestName, render_manifest(manifest));
  return CheckpointReader::open(files, folder);
}

template <class T>
ValueDifference difference_of(DType dtype, const std::vector<T>& a, const std::vector<T>& b) {
  MemoryFiles files;
  CheckpointReader of_a = write(files, "/a", dtype, a);
  CheckpointReader of_b = write(files, "/b", dtype, b);
  const Comparable comparable = match(of_a.manifest(), of_b.manifest());
  REQUIRE(comparable.differences.empty());
  REQUIRE(comparable.common.size() == 1);
  std::uint64_t done = 0;
  const ValueDifference difference = compare_values(of_a, of_b, comparable.common.front(),
                                                    [&](std::uint64_t nbytes) { done += nbytes; });
  CHECK(done == 2 * a.size() * sizeof(T));
  CHECK(difference.name == "parameters/w");
  CHECK(difference.numel == static_cast<std::int64_t>(a.size()));
  return difference;
}

// The differences that `change` makes to the manifest of the second.
std::vector<std::string> facts_of(const std::function<void(Manifest&)>& change) {
  FixtureCheckpoint fixture;
  const Manifest a = fixture.look().manifest;
  Manifest b = a;
  change(b);
  return match(a, b).differences;
}

using Facts = std::vector<std::string>;

TEST_SUITE("checkpoint/convert/compare") {
  TEST_CASE("elements whose bits differ are counted, with the largest difference") {
    const auto some = difference_of<float>(DType::Float32, {1, 2, -8, 4}, {1, 2.5, -8, 4.25});
    CHECK(some.num_different == 2);
    CHECK(some.max_difference == 0.5);
    CHECK(some.max_value == 8);
    const auto none = difference_of<float>(DType::Float32, {1, 2}, {1, 2});
    CHECK(none.num_different == 0);
    CHECK(none.max_difference == 0);
    // Equal as numbers, not as bits.
    const auto zeros = difference_of<float>(DType::Float32, {0.0F, 1}, {-0.0F, 1});
    CHECK(zeros.num_different == 1);
    CHECK(zeros.max_difference == 0);
  }

  TEST_CASE("what is no number differs only where its bits do, and stays the largest difference") {
    const auto same =
        difference_of<float>(DType::Float32, {kNan, 1, kInfinity}, {kNan, 1, kInfinity});
    CHECK(same.num_different == 0);
    CHECK(same.max_difference == 0);
    for (const bool in_a : {true, false}) {
      const std::vector<float> with = {1, kNan, 3, 4};
      const std::vector<float> without = {1, 2, 3, 14};
      const auto some =
          difference_of<float>(DType::Float32, in_a ? with : without, in_a ? without : with);
      CHECK(some.num_different == 2);
      CHECK(std::isnan(some.max_difference));
      CHECK(some.max_value == (in_a ? 4 : 14));
    }
    const auto infinite = difference_of<float>(DType::Float32, {1, kInfinity}, {1, 2});
    CHECK(infinite.num_different == 1);
    CHECK(infinite.max_difference == std::numeric_limits<double>::infinity());
  }

  TEST_CASE("values of other dtypes are compared as what they are") {
    const auto halves =
        difference_of<bfloat16>(DType::BFloat16, {{0x3f80}, {0x4000}}, {{0x3f80}, {0x4040}});
    CHECK(halves.num_different == 1);
    CHECK(halves.max_difference == 1);
    CHECK(halves.max_value == 2);
    const auto integers = difference_of<std::int64_t>(DType::Int64, {-7, 5}, {-7, 9});
    CHECK(integers.num_different == 1);
    CHECK(integers.max_difference == 4);
    CHECK(integers.max_value == 7);
  }

  TEST_CASE("a tensor is compared to its last element, however large") {
    std::vector<float> a((std::size_t{1} << 20) + 3, 1.0F);
    std::vector<float> b = a;
    b.front() = 2;
    b[std::size_t{1} << 20] = 3;
    b.back() = 9;
    const auto difference = difference_of<float>(DType::Float32, a, b);
    CHECK(difference.num_different == 3);
    CHECK(difference.max_difference == 8);
  }

  TEST_CASE("layouts do not matter") {
    FixtureCheckpoint fixture([](Manifest& manifest) { manifest.objects.erase("sampler"); });
    CheckpointReader a = fixture.open();
    CheckpointReader b = CheckpointReader::open(
        fixture.files, reshard(fixture.files, a, "/out", 4, [](std::uint64_t) {}));
    const Comparable comparable = match(a.manifest(), b.manifest());
    CHECK(comparable.differences.empty());
    // Four tensors of four planes and two of one.
    CHECK(comparable.common.size() == 18);
    for (const Common& common : comparable.common) {
      CHECK(compare_values(a, b, common, [](std::uint64_t) {}).num_different == 0);
    }
  }

  TEST_CASE("what one of them lacks, or has otherwise, is said") {
    CHECK(facts_of([](Manifest&) {}) == Facts{});
    CHECK(facts_of([](Manifest& b) { b.layout.tensors.erase(b.layout.tensors.begin()); }) ==
          Facts{"embedding.weight: only in the first"});
    CHECK(facts_of([](Manifest& b) { b.layout.tensors[1].name = "tail"; }) ==
          Facts{"head.weight: only in the first", "tail: only in the second"});
    CHECK(facts_of([](Manifest& b) {
            b.layout.tensors[1].shape = {3, 5};
          }) == Facts{"head.weight: [5, 3] and [3, 5]"});
    CHECK(facts_of([](Manifest& b) { b.layout.tensors[2].step = 8; }) ==
          Facts{"scale: updated 7 times and updated 8 times"});
    CHECK(facts_of([](Manifest& b) { b.layout.tensors[5].step = 8; }) ==
          Facts{"layers.0.norm.weight: frozen and updated 8 times"});
    CHECK(facts_of([](Manifest& b) {
            b.layout.groups[1].planes.push_back({"more", {}});
          }) == Facts{"more/layers.0.wide.weight: only in the second",
                      "more/layers.0.norm.weight: only in the second"});
    CHECK(facts_of([](Manifest& b) { b.layout.groups[0].planes.pop_back(); }).front() ==
          "average/embedding.weight: only in the first");
    CHECK(facts_of([](Manifest& b) { b.layout.groups[1].planes[0].dtype = DType::Float16; }) ==
          Facts{"parameters/layers.0.wide.weight: bfloat16 and float16",
                "parameters/layers.0.norm.weight: bfloat16 and float16"});
    CHECK(facts_of([](Manifest& b) { b.objects.erase("sampler"); }) ==
          Facts{"object sampler: only in the first"});
    CHECK(facts_of([](Manifest& b) { b.objects["more"] = {}; }) ==
          Facts{"object more: only in the second"});
    CHECK(facts_of([](Manifest& b) { b.objects["sampler"].values.back() = 1; }) ==
          Facts{"object sampler: differs"});
    CHECK(facts_of([](Manifest& b) {
            b.step = 30;
            b.created = "2026-12-01T00:00:00Z";
          }) == Facts{});
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
