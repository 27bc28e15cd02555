#include "checkpoint/format/manifest.h"

#include <fmt/format.h>
#include <limits>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/example_manifest.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::example_manifest;

void check_not_rendered(const Manifest& manifest, const char* message) {
  CAPTURE(message);
  CHECK_THROWS_WITH_AS(render_manifest(manifest), doctest::Contains(message), DataError);
}

// One group for every 12 tensors, as a block of a transformer has, and four planes.
Manifest large_manifest(std::int64_t num_files, std::int64_t num_tensors) {
  Manifest manifest = example_manifest();
  manifest.num_ranks = num_files;
  manifest.objects.clear();
  manifest.files.clear();
  for (std::int64_t file = 0; file < num_files; ++file) {
    manifest.files.push_back({.name = fmt::format("rank-{:05}.safetensors", file),
                              .facts = {.nbytes = std::uint64_t{1} << 43,
                                        .digest = {.high = ~std::uint64_t{0}, .low = 1}}});
  }
  manifest.layout = {};
  for (std::int64_t i = 0; i < num_tensors; ++i) {
    if (i % 12 == 0) {
      manifest.layout.groups.push_back({.name = fmt::format("layers.{}", i / 12),
                                        .part = 24'576,
                                        .planes = {{.name = "parameters"},
                                                   {.name = "exp_avg"},
                                                   {.name = "exp_avg_sq"},
                                                   {.name = "average"}}});
    }
    manifest.layout.tensors.push_back(
        {.name = fmt::format("layers.{}.self_attention.projection_{}.weight", i / 12, i % 12),
         .shape = {4096, 4096},
         .group = i / 12,
         .offset = i % 12 * 4096 * 4096,
         .pieces = {},
         .step = 1'000'000});
  }
  return manifest;
}

}  // namespace

TEST_SUITE("checkpoint/format manifest") {
  TEST_CASE("a manifest is read as it was written") {
    const Manifest manifest = example_manifest();
    CHECK(parse_manifest("m", render_manifest(manifest)) == manifest);
    Manifest other = manifest;
    other.objects.clear();
    other.layout = {};
    other.writer = "\"\\\n\x01 \xc3\xa9";
    CHECK(parse_manifest("m", render_manifest(other)) == other);
  }

  TEST_CASE("numbers of objects are read as they were written") {
    Manifest manifest = example_manifest();
    const std::vector<nlohmann::json> numbers = {0,
                                                 -1,
                                                 std::numeric_limits<std::int64_t>::min(),
                                                 std::numeric_limits<std::uint64_t>::max(),
                                                 0.1,
                                                 -0.0,
                                                 5e-324,
                                                 std::numeric_limits<double>::max(),
                                                 1.0};
    manifest.objects["data"].values = {nlohmann::json(numbers)};
    const Manifest read = parse_manifest("m", render_manifest(manifest));
    const nlohmann::json& values = read.objects.at("data").values[0];
    REQUIRE(values.size() == numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      CHECK(values[i].dump() == numbers[i].dump());
      CHECK(values[i].type() == nlohmann::json::parse(numbers[i].dump()).type());
    }
  }

  TEST_CASE("a manifest has at most 64 KiB, 200 bytes a tensor and 128 bytes a file") {
    for (const auto& [num_files, num_tensors] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {8, 12}, {10'240, 1'000}, {1, 20'000}}) {
      CAPTURE(num_files);
      CAPTURE(num_tensors);
      Manifest manifest = large_manifest(num_files, num_tensors);
      for (SavedGroup& group : manifest.layout.groups) {
        group.part = 4096 * 4096 * 12 / num_files + 1;
      }
      const auto limit = static_cast<std::size_t>(65536 + 200 * num_tensors + 128 * num_files);
      const std::string text = render_manifest(manifest);
      CHECK(text.size() <= limit);
      CHECK(parse_manifest("m", text) == manifest);
    }
  }

  TEST_CASE("each flipped bit, and each cut, is found") {
    const std::string text = render_manifest(example_manifest());
    for (std::size_t place = 0; place < text.size(); ++place) {
      std::string damaged = text;
      damaged[place] = static_cast<char>(damaged[place] ^ (1 << place % 8));
      CAPTURE(place);
      CHECK_THROWS_WITH_AS(parse_manifest("m", damaged), doctest::Contains("m: "), DataError);
      CHECK_THROWS_AS(parse_manifest("m", text.substr(0, place)), DataError);
    }
    CHECK_THROWS_AS(parse_manifest("m", text + "\n"), DataError);
  }

  TEST_CASE("an edit without a new digest is said to be one") {
    const std::string text = render_manifest(example_manifest());
    const std::string edited = testing::replaced(text, "\"step\":1000", "\"step\":2000");
    CHECK_THROWS_WITH_AS(parse_manifest("m", edited),
                         doctest::Contains("m: the manifest is damaged or was edited"), DataError);
    CHECK(parse_manifest("m", testing::resealed(edited)).step == 2000);
  }

  TEST_CASE("what could not be read is not written") {
    const auto changed = [](const auto& change) {
      Manifest manifest = example_manifest();
      change(manifest);
      return manifest;
    };
    check_not_rendered(changed([](Manifest& m) { m.step = -1; }), "step must be >= 0, got -1");
    check_not_rendered(changed([](Manifest& m) { m.attempt = "7"; }), "attempt: a digest has 32");
    check_not_rendered(changed([](Manifest& m) { m.created = "now"; }), "created must be like");
    check_not_rendered(changed([](Manifest& m) { m.num_ranks = 3; }), "there are 2 files");
    check_not_rendered(changed([](Manifest& m) { m.files[1].name = "a/b"; }), "got \"a/b\"");
    check_not_rendered(changed([](Manifest& m) { m.objects["keys"].values.pop_back(); }),
                       "object \"keys\": it must have 2 values, got 1");
    check_not_rendered(changed([](Manifest& m) {
                         m.objects["data"].values[0] = std::numeric_limits<double>::infinity();
                       }),
                       "object \"data\": numbers must be finite");
    check_not_rendered(changed([](Manifest& m) { m.objects["data"].values[0] = "\xff"; }),
                       "names and objects must be UTF-8");
    check_not_rendered(changed([](Manifest& m) {
                         nlohmann::json deep = 1;
                         for (int i = 0; i < 60; ++i) {
                           deep = nlohmann::json::array({deep});
                         }
                         m.objects["data"].values[0] = deep;
                       }),
                       "object \"data\": it is nested deeper than 60");
    check_not_rendered(changed([](Manifest& m) {
                         m.objects["data"].values[0] = nlohmann::json::binary({1, 2});
                       }),
                       "object \"data\": it must be JSON");
  }

  TEST_CASE("an object of the greatest depth is read back") {
    Manifest manifest = example_manifest();
    nlohmann::json deep = 1;
    for (int i = 0; i < 59; ++i) {
      deep = nlohmann::json::array({deep});
    }
    manifest.objects["data"].values[0] = deep;
    CHECK(parse_manifest("m", render_manifest(manifest)) == manifest);
  }

  TEST_CASE("pieces are named after plane, tensor and place") {
    const SavedLayout layout = example_manifest().layout;
    CHECK(piece_name("parameters", layout.tensors[0], 0, 100) == "parameters/wte.weight");
    CHECK(piece_name("exp_avg", layout.tensors[1], 0, 16) == "exp_avg/head.weight@0");
    CHECK(piece_name("exp_avg", layout.tensors[1], 16, 56) == "exp_avg/head.weight@16");
    const SavedTensor& boxed = layout.tensors[2];
    CHECK(piece_name("parameters", boxed, boxed.pieces[1]) == "parameters/boxed@0,0:3");
    CHECK(piece_name("parameters", boxed, boxed.pieces[2]) == "parameters/boxed@0,2:0");
  }

  TEST_CASE("the bytes of each file are those of the tensors in it") {
    const Manifest manifest = example_manifest();
    // 100 and 16 elements of 6 bytes, 3 of 8; 40 of 6, 21 of 8.
    CHECK(data_nbytes_of_files(manifest.layout, 2) ==
          std::vector<std::uint64_t>{100 * 6 + 16 * 6 + 3 * 8, 40 * 6 + 21 * 8});
    const Manifest large = large_manifest(8192, 24);
    std::uint64_t total = 0;
    for (const std::uint64_t nbytes : data_nbytes_of_files(large.layout, 8192)) {
      total += nbytes;
      CHECK(nbytes == 2 * 24'576 * 16);
    }
    CHECK(total == 24 * std::uint64_t{4096} * 4096 * 16);
  }
}

}  // namespace fsdptrain::checkpoint
