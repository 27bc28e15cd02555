#include <algorithm>
#include <fmt/format.h>

#include <doctest/doctest.h>

#include "checkpoint/plan/layout_index.h"
#include "checkpoint/plan/read_plan.h"

namespace fsdptrain::checkpoint {
namespace {

constexpr std::int64_t kMostOperations = 64;

// 48 blocks of 12 tensors, as a model of some billions of parameters has.
SavedLayout transformer(std::int64_t num_files) {
  constexpr std::int64_t kGranule = 128;
  SavedLayout layout;
  for (std::int64_t block = 0; block < 48; ++block) {
    std::int64_t offset = 0;
    for (std::int64_t i = 0; i < 12; ++i) {
      const Shape shape = i % 3 == 0 ? Shape{4096} : Shape{4096, 1024 * (1 + i % 4)};
      layout.tensors.push_back({.name = fmt::format("blocks.{}.{}", block, i),
                                .shape = shape,
                                .group = block,
                                .offset = offset,
                                .pieces = {},
                                .step = {}});
      offset += (shape.numel() + kGranule - 1) / kGranule * kGranule;
    }
    const std::int64_t part = (offset + num_files - 1) / num_files;
    layout.groups.push_back({.name = fmt::format("blocks.{}", block),
                             .part = (part + kGranule - 1) / kGranule * kGranule,
                             .planes = {{.name = "parameters", .dtype = DType::Float32}}});
  }
  return layout;
}

// A weight of 8 columns of boxes, each shared out among a tenth of the files.
SavedLayout boxed_weight(std::int64_t num_files) {
  SavedLayout layout;
  layout.groups.push_back(
      {.name = "g", .part = 0, .planes = {{.name = "parameters", .dtype = DType::Float32}}});
  SavedTensor tensor{
      .name = "w", .shape = {16384, 8192}, .group = 0, .offset = 0, .pieces = {}, .step = {}};
  constexpr std::int64_t kColumns = 8;
  const Box first = {.offset = {0, 0}, .size = {16384, 8192 / kColumns}};
  const std::int64_t per_column = num_files / kColumns;
  for (std::int64_t column = 0; column < kColumns; ++column) {
    Box box = first;
    box.offset[1] = column * box.size[1];
    for (std::int64_t i = 0; i < per_column; ++i) {
      tensor.pieces.push_back({.file = column * per_column + i,
                               .box = box,
                               .in_box = {.begin = box.numel() * i / per_column,
                                          .end = box.numel() * (i + 1) / per_column}});
    }
  }
  layout.tensors.push_back(tensor);
  return layout;
}

struct Cost {
  std::int64_t most = 0;
  std::int64_t elements = 0;
  std::int64_t plans = 0;
};

// Every rank of `wanted` reads its tensors from the files of `saved`.
Cost read_all(const SavedLayout& saved, const SavedLayout& wanted, std::int64_t num_ranks) {
  const ReadPlanner planner(saved);
  const LayoutIndex index(wanted);
  Cost cost;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    for (const HeldPiece& held : index.pieces_of(rank)) {
      const Shape& shape = saved.tensors[held.tensor].shape;
      const WantedPart part = held.piece != nullptr
                                  ? WantedPart{.box = held.piece->box, .in_box = held.elements}
                                  : wanted_range(shape, held.elements);
      const ReadPlan plan = planner.plan(held.tensor, part);
      cost.most = std::max(cost.most, plan.num_operations);
      ++cost.plans;
      for (const ReadPiece& piece : plan.pieces) {
        cost.elements += piece.span.size();
      }
    }
  }
  return cost;
}

}  // namespace

TEST_SUITE("checkpoint/plan scale") {
  TEST_CASE("from and to 4,096 and 10,240 ranks, a tensor takes a rank at most 64 operations") {
    for (const auto& [from, to] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {4096, 10'240}, {10'240, 4096}, {10'240, 10'240}, {8, 10'240}}) {
      CAPTURE(from);
      CAPTURE(to);
      const SavedLayout saved = transformer(from);
      check_layout("test", saved, from);
      const Cost cost = read_all(saved, transformer(to), to);
      CHECK(cost.most <= kMostOperations);
      // No rank is asked for tensors that it does not have.
      CHECK(cost.plans <= 48 * (to + 12));
      std::int64_t numel = 0;
      for (const SavedTensor& tensor : saved.tensors) {
        numel += tensor.shape.numel();
      }
      CHECK(cost.elements == numel);
    }
  }

  TEST_CASE("pieces of boxes are found among 10,240 without looking at them all") {
    const SavedLayout saved = boxed_weight(10'240);
    check_layout("test", saved, 10'240);
    for (const std::int64_t to : {4096, 10'240}) {
      CAPTURE(to);
      const Cost cost = read_all(saved, boxed_weight(to), to);
      CHECK(cost.most <= kMostOperations);
      CHECK(cost.elements == saved.tensors[0].shape.numel());
    }
  }

  TEST_CASE("one rank that reads a tensor of 10,240 files takes a few operations a file") {
    const SavedLayout saved = transformer(10'240);
    const std::size_t tensor = 2;
    const ReadPlan plan = ReadPlanner(saved).plan(
        tensor,
        wanted_range(saved.tensors[tensor].shape, {0, saved.tensors[tensor].shape.numel()}));
    CHECK(plan.pieces.size() > 1000);
    CHECK(plan.num_operations <= 8 * static_cast<std::int64_t>(plan.pieces.size()));
  }
}

}  // namespace fsdptrain::checkpoint
