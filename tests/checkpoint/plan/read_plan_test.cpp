#include "checkpoint/plan/read_plan.h"

#include <array>

#include <doctest/doctest.h>

#include "checkpoint/format/blocks/block_file.h"
#include "checkpoint/plan/layout_index.h"
#include "runtime/base/error.h"
#include "tests/support/memory_files.h"
#include "tests/support/random_layout.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::Draws;
using testing::index_in_tensor;
using testing::random_part;

// One group of a plane of int32, whose elements are their own index in the tensor.
SavedLayout layout_of(std::vector<SavedTensor> tensors, std::int64_t part) {
  return {.groups = {{.name = "g",
                      .part = part,
                      .planes = {{.name = "parameters", .dtype = DType::Int32}}}},
          .tensors = std::move(tensors)};
}

SavedTensor flat_tensor(const std::string& name, const Shape& shape, std::int64_t offset) {
  return {.name = name, .shape = shape, .group = 0, .offset = offset, .pieces = {}, .step = {}};
}

// Carries the plan out element by element; how often each wanted element was written, and whether
// all were the right ones.
struct Outcome {
  bool each_once = true;
  bool all_right = true;
  bool spans_are_tight = true;
};

Outcome carry_out(const SavedTensor& tensor, const ReadPlan& plan, const WantedPart& wanted) {
  Outcome outcome;
  std::vector<int> written(static_cast<std::size_t>(wanted.in_box.size()));
  for (const ReadPiece& piece : plan.pieces) {
    const std::vector<Run> runs = runs_of(piece, wanted);
    outcome.spans_are_tight = outcome.spans_are_tight && !runs.empty() &&
                              piece.span.begin == runs.front().from &&
                              piece.span.end == runs.back().from + runs.back().count &&
                              piece.span.begin >= 0 && piece.span.end <= piece.saved.in_box.size();
    for (const Run& run : runs) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        ++written.at(static_cast<std::size_t>(run.to + i));
        const std::int64_t here =
            index_in_tensor(tensor.shape, piece.saved.box, piece.saved.in_box.begin + run.from + i);
        const std::int64_t there =
            index_in_tensor(tensor.shape, wanted.box, wanted.in_box.begin + run.to + i);
        outcome.all_right = outcome.all_right && here == there;
      }
    }
  }
  outcome.each_once = std::ranges::all_of(written, [](int times) { return times == 1; });
  return outcome;
}

void check_carried_out(const SavedLayout& layout, std::size_t tensor, const WantedPart& wanted) {
  const ReadPlan plan = ReadPlanner(layout).plan(tensor, wanted);
  const Outcome outcome = carry_out(layout.tensors[tensor], plan, wanted);
  CHECK(outcome.each_once);
  CHECK(outcome.all_right);
  CHECK(outcome.spans_are_tight);
}

std::vector<std::int64_t> files_of(const ReadPlan& plan) {
  std::vector<std::int64_t> files;
  for (const ReadPiece& piece : plan.pieces) {
    files.push_back(piece.saved.file);
  }
  return files;
}

// The files of a layout in memory, each element its index in its tensor.
void write_files(testing::MemoryFiles& files, const SavedLayout& layout, std::int64_t num_files) {
  const LayoutIndex index(layout);
  for (std::int64_t file = 0; file < num_files; ++file) {
    const std::vector<HeldPiece> pieces = index.pieces_of(file);
    BlockFileWriter writer(files, "/" + std::to_string(file), {}, index.specs_of(pieces));
    for (const HeldPiece& held : pieces) {
      const SavedTensor& tensor = layout.tensors[held.tensor];
      const Box box = held.piece != nullptr ? held.piece->box : wanted_range(tensor.shape, {}).box;
      std::vector<std::int32_t> values;
      for (std::int64_t i = held.elements.begin; i < held.elements.end; ++i) {
        values.push_back(static_cast<std::int32_t>(index_in_tensor(tensor.shape, box, i)));
      }
      writer.append(std::as_bytes(std::span(values)));
    }
    writer.finish();
  }
}

std::vector<std::int32_t> read_part(testing::MemoryFiles& files, const SavedLayout& layout,
                                    std::size_t tensor, const WantedPart& wanted) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(wanted.in_box.size()), -1);
  for (const ReadPiece& piece : ReadPlanner(layout).plan(tensor, wanted).pieces) {
    const BlockFileReader reader(files, "/" + std::to_string(piece.saved.file), std::nullopt);
    const TensorEntry* const entry =
        reader.find(read_piece_name("parameters", layout.tensors[tensor], piece));
    REQUIRE(entry != nullptr);
    REQUIRE(entry->shape.numel() == piece.saved.in_box.size());
    BlockFileReader::Ends ends;
    for (const Run& run : runs_of(piece, wanted)) {
      const auto part = std::span(out).subspan(static_cast<std::size_t>(run.to),
                                               static_cast<std::size_t>(run.count));
      reader.read(entry->begin + static_cast<std::uint64_t>(run.from) * 4,
                  std::as_writable_bytes(part), ends);
    }
  }
  return out;
}

}  // namespace

TEST_SUITE("checkpoint/plan read plan") {
  TEST_CASE("a range of a tensor in a flat buffer is read from the files that have it") {
    // Elements 10 to 40 of the buffer, 16 to a file.
    const SavedLayout layout = layout_of({flat_tensor("a", {5, 6}, 10)}, 16);
    const ReadPlanner planner(layout);
    const WantedPart all = wanted_range({5, 6}, {0, 30});
    const ReadPlan plan = planner.plan(0, all);
    CHECK(files_of(plan) == std::vector<std::int64_t>{0, 1, 2});
    CHECK(plan.pieces[1].saved.in_box == kernels::Range{6, 22});
    CHECK(read_piece_name("exp_avg", layout.tensors[0], plan.pieces[1]) == "exp_avg/a@6");
    CHECK(runs_of(plan.pieces[1], all) == std::vector<Run>{{.from = 0, .to = 6, .count = 16}});
    const WantedPart some = wanted_range({5, 6}, {7, 21});
    CHECK(files_of(planner.plan(0, some)) == std::vector<std::int64_t>{1});
    CHECK(planner.plan(0, some).pieces[0].span == kernels::Range{1, 15});
    CHECK(runs_of(planner.plan(0, some).pieces[0], some) ==
          std::vector<Run>{{.from = 1, .to = 0, .count = 14}});
    CHECK(planner.plan(0, wanted_range({5, 6}, {30, 30})).pieces.empty());
  }

  TEST_CASE("columns of a tensor in a flat buffer are runs of each row") {
    const SavedLayout layout = layout_of({flat_tensor("a", {3, 6}, 0)}, 18);
    const WantedPart wanted = {.box = {.offset = {0, 2}, .size = {3, 2}},
                               .in_box = {.begin = 1, .end = 6}};
    const ReadPlan plan = ReadPlanner(layout).plan(0, wanted);
    REQUIRE(plan.pieces.size() == 1);
    CHECK(plan.pieces[0].span == kernels::Range{3, 16});
    CHECK(runs_of(plan.pieces[0], wanted) == std::vector<Run>{{.from = 3, .to = 0, .count = 1},
                                                              {.from = 8, .to = 1, .count = 2},
                                                              {.from = 14, .to = 3, .count = 2}});
  }

  TEST_CASE("files between wanted columns are not touched") {
    // 1,000 elements to a row, 10 to a file, and 3 wanted in each row.
    const SavedLayout layout = layout_of({flat_tensor("a", {4, 1000}, 0)}, 10);
    const WantedPart wanted = {.box = {.offset = {0, 500}, .size = {4, 3}},
                               .in_box = {.begin = 0, .end = 12}};
    CHECK(files_of(ReadPlanner(layout).plan(0, wanted)) ==
          std::vector<std::int64_t>{50, 150, 250, 350});
  }

  TEST_CASE("any part of any saved form is read, each element once and from where it is") {
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
      CAPTURE(seed);
      Draws draws(seed);
      const Shape shape = testing::random_shape(draws);
      const std::int64_t num_files = draws.next(1, 6);
      const bool is_boxed = draws.next(0, 1) == 0;
      const std::int64_t offset = draws.next(0, 20);
      const std::int64_t part = (offset + shape.numel()) / num_files + draws.next(1, 3);
      const SavedLayout layout =
          layout_of({is_boxed ? testing::boxed_tensor(draws, "a", shape, num_files)
                              : flat_tensor("a", shape, offset)},
                    part);
      check_layout("test", layout, num_files);
      check_carried_out(layout, 0, random_part(draws, shape));
    }
  }

  TEST_CASE("bytes that went into files in boxes come out as boxes and ranges, and the reverse") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      CAPTURE(seed);
      Draws draws(seed);
      constexpr std::int64_t kNumFiles = 4;
      const Shape shape = testing::random_shape(draws);
      const SavedLayout layout = layout_of(
          {testing::boxed_tensor(draws, "boxed", shape, kNumFiles), flat_tensor("flat", shape, 3)},
          (3 + shape.numel()) / kNumFiles + 1);
      check_layout("test", layout, kNumFiles);
      testing::MemoryFiles files;
      write_files(files, layout, kNumFiles);
      for (std::size_t tensor = 0; tensor < 2; ++tensor) {
        const WantedPart wanted = random_part(draws, shape);
        std::vector<std::int32_t> expected;
        for (std::int64_t i = wanted.in_box.begin; i < wanted.in_box.end; ++i) {
          expected.push_back(static_cast<std::int32_t>(index_in_tensor(shape, wanted.box, i)));
        }
        CHECK(read_part(files, layout, tensor, wanted) == expected);
      }
    }
  }

  TEST_CASE("what does not lie in the tensor cannot be asked for") {
    const SavedLayout layout = layout_of({flat_tensor("a", {3, 6}, 0)}, 18);
    const ReadPlanner planner(layout);
    const auto check_refused = [&](const WantedPart& wanted) {
      CHECK_THROWS_WITH_AS(planner.plan(0, wanted),
                           doctest::Contains("tensor \"a\" of shape [3, 6]"), ShapeError);
    };
    check_refused(wanted_range({3, 6}, {0, 19}));
    check_refused(wanted_range({3, 6}, {-1, 2}));
    check_refused(wanted_range({3, 6}, {3, 2}));
    check_refused(wanted_range({18}, {0, 18}));
    check_refused({.box = {.offset = {0, 5}, .size = {3, 2}}, .in_box = {0, 1}});
    check_refused({.box = {.offset = {-1, 0}, .size = {3, 2}}, .in_box = {0, 1}});
    check_refused({.box = {.offset = {0, 0}, .size = {-1, -1}}, .in_box = {0, 1}});
  }
}

}  // namespace fsdptrain::checkpoint
