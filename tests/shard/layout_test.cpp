#include "shard/layout.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain::shard {
namespace {

using doctest::Contains;
using Parameters = std::vector<LayoutParameter>;

constexpr BufferKey kFrozen{DType::Float32, DType::Float32, std::nullopt};
constexpr BufferKey kHalf{DType::Float32, DType::BFloat16, DType::Float32};

std::vector<int> rank_counts() {
  std::vector<int> counts;
  for (int num_ranks = 1; num_ranks <= 17; ++num_ranks) {
    counts.push_back(num_ranks);
  }
  counts.insert(counts.end(), {64, 1000, 1024});
  return counts;
}

// What each place of a buffer holds: a parameter's element, or nothing.
struct Place {
  std::size_t parameter = 0;
  std::int64_t element = -1;
};

// Lays the segments of all ranks down; a place that two of them fill is a failure.
std::vector<Place> places_of(const BufferLayout& buffer) {
  std::vector<Place> places(static_cast<std::size_t>(buffer.numel()));
  for (int rank = 0; rank < buffer.num_ranks(); ++rank) {
    for (const LocalRange& segment : buffer.segments(rank)) {
      REQUIRE(segment.in_chunk.size() == segment.in_parameter.size());
      REQUIRE(segment.in_chunk.size() > 0);
      REQUIRE(segment.in_chunk.begin >= 0);
      REQUIRE(segment.in_chunk.end <= buffer.chunk_numel());
      for (std::int64_t i = 0; i < segment.in_chunk.size(); ++i) {
        Place& place = places[static_cast<std::size_t>(buffer.chunk_numel() * rank +
                                                       segment.in_chunk.begin + i)];
        REQUIRE(place.element == -1);
        place = {segment.parameter, segment.in_parameter.begin + i};
      }
    }
  }
  return places;
}

// Every element of every parameter is in one place, in order, and owner_of() finds it there.
void check_elements(const Parameters& parameters, const BufferLayout& buffer) {
  const std::vector<Place> places = places_of(buffer);
  std::int64_t filled = 0;
  for (const Placement& placement : buffer.placements()) {
    const std::int64_t numel = parameters[placement.parameter].numel;
    REQUIRE(placement.in_buffer.size() == numel);
    for (std::int64_t element = 0; element < numel; ++element) {
      const auto index = static_cast<std::size_t>(placement.in_buffer.begin + element);
      REQUIRE(places[index].parameter == placement.parameter);
      REQUIRE(places[index].element == element);
      const ElementOwner owner = buffer.owner_of(placement, element);
      REQUIRE(static_cast<std::size_t>(owner.rank * buffer.chunk_numel() + owner.in_chunk) ==
              index);
    }
    filled += numel;
  }
  CHECK(std::ranges::count_if(places, [](const Place& place) { return place.element >= 0; }) ==
        filled);
  CHECK(buffer.padding() == buffer.numel() - filled);
}

// Gaps are what is empty; segments are what of a chunk is not.
void check_gaps(const BufferLayout& buffer) {
  const std::vector<Place> places = places_of(buffer);
  std::vector<bool> of_buffer(places.size(), false);
  for (const Range& gap : buffer.gaps()) {
    REQUIRE(gap.size() > 0);
    std::fill(of_buffer.begin() + gap.begin, of_buffer.begin() + gap.end, true);
  }
  std::vector<bool> of_chunks(places.size(), true);
  for (int rank = 0; rank < buffer.num_ranks(); ++rank) {
    for (const LocalRange& segment : buffer.segments(rank)) {
      const auto chunk = of_chunks.begin() + buffer.chunk_numel() * rank;
      std::fill(chunk + segment.in_chunk.begin, chunk + segment.in_chunk.end, false);
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    REQUIRE(of_buffer[i] == (places[i].element < 0));
    REQUIRE(of_chunks[i] == (places[i].element < 0));
  }
}

void check_granules(const BufferLayout& buffer, std::size_t num_parameters) {
  const std::int64_t granule = buffer.granule();
  CHECK((granule == 128 || granule == 32));
  CHECK(buffer.chunk_numel() % granule == 0);
  for (const Placement& placement : buffer.placements()) {
    CHECK(placement.in_buffer.begin % granule == 0);
  }
  const auto allowed = buffer.num_ranks() + static_cast<std::int64_t>(num_parameters);
  CHECK(buffer.padding() <= allowed * granule);
}

// Sizes of all kinds; a few of them large.
Parameters random_parameters(std::mt19937& random) {
  constexpr std::array<std::int64_t, 16> kSizes = {0,   1,   2,   31,  32,   33,   97,   127,
                                                   128, 129, 257, 512, 1009, 4096, 7919, 12289};
  Parameters parameters;
  const std::size_t num_parameters = 1 + random() % 9;
  for (std::size_t i = 0; i < num_parameters; ++i) {
    parameters.push_back({.name = "p" + std::to_string(i), .numel = kSizes[random() % 16]});
  }
  return parameters;
}

TEST_SUITE("shard/layout") {
  TEST_CASE("every element is owned by one rank, and what nobody owns is a gap") {
    std::mt19937 random(1);
    for (const int num_ranks : rank_counts()) {
      CAPTURE(num_ranks);
      for (int sample = 0; sample < 12; ++sample) {
        CAPTURE(sample);
        const Parameters parameters = random_parameters(random);
        const GroupLayout layout = plan_layout(parameters, num_ranks);
        REQUIRE(layout.buffers.size() == 1);
        check_elements(parameters, layout.buffers[0]);
        check_gaps(layout.buffers[0]);
        check_granules(layout.buffers[0], parameters.size());
      }
    }
  }

  TEST_CASE("a plan depends on its arguments alone") {
    std::mt19937 random(2);
    for (const int num_ranks : rank_counts()) {
      const Parameters parameters = random_parameters(random);
      CHECK(plan_layout(parameters, num_ranks).buffers ==
            plan_layout(Parameters(parameters), num_ranks).buffers);
    }
  }

  TEST_CASE("granules are small where a rank would own fewer than 400 large ones") {
    const auto granule = [](std::int64_t numel, int num_ranks) {
      return plan_layout(Parameters{{.name = "w", .numel = numel}}, num_ranks).buffers[0].granule();
    };
    CHECK(granule(400 * 128, 1) == 128);
    CHECK(granule(399 * 128 + 1, 1) == 128);
    CHECK(granule(399 * 128, 1) == 32);
    CHECK(granule(400 * 128 * 6, 6) == 128);
    CHECK(granule(400 * 128 * 6, 7) == 32);
  }

  TEST_CASE("parameters that differ in a dtype, or in being trained, have buffers of their own") {
    const Parameters parameters = {{.name = "a", .numel = 100},
                                   {.name = "b", .numel = 50, .key = kFrozen},
                                   {.name = "c", .numel = 7, .key = kHalf},
                                   {.name = "d", .numel = 300}};
    const GroupLayout layout = plan_layout(parameters, 3);
    REQUIRE(layout.buffers.size() == 3);
    CHECK(layout.buffers[0].placements() == std::vector<Placement>{{0, {0, 100}}, {3, {128, 428}}});
    CHECK(layout.buffers[1].key() == kFrozen);
    CHECK(!layout.buffers[1].key().trainable());
    CHECK(layout.buffers[2].key() == kHalf);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      CAPTURE(i);
      CHECK(layout.placement_of(i).parameter == i);
      CHECK(layout.placement_of(i).in_buffer.size() == parameters[i].numel);
      CHECK(layout.buffer_of(i).key() == parameters[i].key);
    }
  }

  TEST_CASE("adjacent parameters lie without gaps, in the order of their set") {
    const Parameters parameters = {{.name = "k", .numel = 33},
                                   {.name = "norm", .numel = 5},
                                   {.name = "q", .numel = 65},
                                   {.name = "v", .numel = 1}};
    const GroupLayout layout = plan_layout(parameters, 2, {.adjacent = {{"q", "k", "v"}}});
    CHECK(layout.buffers[0].placements() ==
          std::vector<Placement>{{1, {0, 5}}, {2, {32, 97}}, {0, {97, 130}}, {3, {130, 131}}});
    check_elements(parameters, layout.buffers[0]);
    check_gaps(layout.buffers[0]);
  }

  TEST_CASE("a row group is never on two ranks") {
    for (const int num_ranks : rank_counts()) {
      CAPTURE(num_ranks);
      // Large ones come first: the others begin on multiples of their row groups behind them.
      const std::int64_t rows = 5 * (400 * num_ranks + 1);
      const Parameters parameters = {{.name = "free", .numel = 1000 + num_ranks},
                                     {.name = "wide", .numel = 160 * rows, .row_group = 160},
                                     {.name = "thin", .numel = 96 * rows, .row_group = 96},
                                     {.name = "behind", .numel = 80 * 11, .row_group = 80}};
      const GroupLayout layout =
          plan_layout(parameters, num_ranks, {.adjacent = {{"thin", "behind"}}});
      const BufferLayout& buffer = layout.buffers[0];
      bool is_whole = true;
      for (const std::size_t i : {1, 2, 3}) {
        const std::int64_t row_group = parameters[i].row_group;
        const Placement& placement = layout.placement_of(i);
        for (std::int64_t row = 0; row < parameters[i].numel; row += row_group) {
          is_whole = is_whole && buffer.owner_of(placement, row).rank ==
                                     buffer.owner_of(placement, row + row_group - 1).rank;
        }
      }
      CHECK(is_whole);
    }
  }

  TEST_CASE("an empty group has no buffers, and empty parameters an empty one") {
    CHECK(plan_layout({}, 4).buffers.empty());
    const GroupLayout layout = plan_layout(Parameters{{.name = "none", .numel = 0}}, 4);
    CHECK(layout.buffers[0].numel() == 0);
    CHECK(layout.buffers[0].segments(3).empty());
    CHECK(layout.buffers[0].gaps().empty());
  }

  TEST_CASE("a rank without elements of a parameter has an empty range of it") {
    const Parameters parameters = {{.name = "w", .numel = 40}};
    const BufferLayout buffer = plan_layout(parameters, 3).buffers[0];
    CHECK(buffer.chunk_numel() == 32);
    const Placement& placement = buffer.placements()[0];
    CHECK(buffer.local_range(placement, 0) == LocalRange{0, {0, 32}, {0, 32}});
    CHECK(buffer.local_range(placement, 1) == LocalRange{0, {32, 40}, {0, 8}});
    CHECK(buffer.local_range(placement, 2) == LocalRange{0, {40, 40}, {0, 0}});
  }

  TEST_CASE("the largest sizes are planned without overflow") {
    Parameters parameters;
    for (int i = 0; i < 256; ++i) {
      parameters.push_back({.name = "p" + std::to_string(i), .numel = std::int64_t{1} << 48});
    }
    const BufferLayout buffer = plan_layout(parameters, 1024).buffers[0];
    CHECK(buffer.padding() == 0);
    const ElementOwner last =
        buffer.owner_of(buffer.placements().back(), (std::int64_t{1} << 48) - 1);
    CHECK(last == ElementOwner{1023, buffer.chunk_numel() - 1});
    parameters.push_back({.name = "straw", .numel = 1});
    CHECK_THROWS_WITH_AS(plan_layout(parameters, 1024),
                         Contains("at most 2^56 elements, got 72057594037927937 with straw"),
                         ShapeError);
  }
}

TEST_SUITE("shard/layout errors") {
  TEST_CASE("what cannot be laid out is refused with its values") {
    const auto plan = [](const Parameters& parameters, int num_ranks,
                         const LayoutConstraints& constraints) {
      plan_layout(parameters, num_ranks, constraints);
    };
    const Parameters two = {{.name = "a", .numel = 5}, {.name = "b", .numel = 5, .key = kFrozen}};
    CHECK_THROWS_WITH_AS(plan(two, 0, {}), Contains("at least one rank, got 0"), ShapeError);
    CHECK_THROWS_WITH_AS(plan({{.name = "w", .numel = -1}}, 1, {}),
                         Contains("w must have 0 to 2^48 elements, got -1"), ShapeError);
    CHECK_THROWS_WITH_AS(plan({{.name = "w", .numel = (std::int64_t{1} << 48) + 1}}, 1, {}),
                         Contains("w must have 0 to 2^48 elements, got 281474976710657"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(plan({{.name = "w", .numel = 1, .row_group = 0}}, 1, {}),
                         Contains("a row group of w must have 1 to 2^48 elements, got 0"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(plan({{.name = "w"}, {.name = "w"}}, 1, {}),
                         Contains("two parameters have the name w"), ConfigError);
    CHECK_THROWS_WITH_AS(plan(two, 1, {.adjacent = {{"a", "c"}}}),
                         Contains("adjacent parameter c is unknown or in two sets"), ConfigError);
    CHECK_THROWS_WITH_AS(plan(two, 1, {.adjacent = {{"a"}, {"a"}}}),
                         Contains("adjacent parameter a is unknown or in two sets"), ConfigError);
    CHECK_THROWS_WITH_AS(plan(two, 1, {.adjacent = {{"a", "b"}}}), Contains("a and b are adjacent"),
                         ConfigError);
    const BufferLayout buffer = plan_layout(two, 2).buffers[0];
    CHECK_THROWS_WITH_AS(buffer.segments(2), Contains("a rank must be in [0, 2), got 2"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(buffer.owner_of(buffer.placements()[0], 5),
                         Contains("an element of parameter 0 must be in [0, 5), got 5"),
                         ShapeError);
  }

  TEST_CASE("row groups that are too large, or begin in another's middle, are refused") {
    const auto plan = [](std::int64_t numel, std::int64_t row_group, int num_ranks) {
      return plan_layout(Parameters{{.name = "w", .numel = numel, .row_group = row_group}},
                         num_ranks);
    };
    CHECK(plan(2 * 102400, 1024, 2).buffers[0].chunk_numel() == 102400);
    CHECK_THROWS_WITH_AS(plan(2 * 101376, 1024, 2),
                         Contains("at most 1 % of a chunk, got 1024 elements for chunks of 101376 "
                                  "on 2 ranks"),
                         ShapeError);
    CHECK(plan(1000, 1000, 1).buffers[0].chunk_numel() == 1024);
    CHECK_THROWS_WITH_AS(plan(1000, (std::int64_t{1} << 47) + 1, 2),
                         Contains("row groups of 140737488355329 elements, of w, have no common "
                                  "multiple with 128 below 2^48"),
                         ShapeError);
    const Parameters set = {{.name = "a", .numel = 100},
                            {.name = "b", .numel = 90, .row_group = 3}};
    CHECK_THROWS_WITH_AS(plan_layout(set, 2, {.adjacent = {{"a", "b"}}}),
                         Contains("b comes after 100 elements of its adjacent set: its row groups "
                                  "must divide that, got 3 elements"),
                         ConfigError);
  }
}

}  // namespace
}  // namespace fsdptrain::shard
