#include "checkpoint/plan/layout_index.h"

#include <doctest/doctest.h>

#include "tests/support/example_manifest.h"
#include "tests/support/random_layout.h"

namespace fsdptrain::checkpoint {
namespace {

std::vector<std::string> names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) {
    names.push_back(spec.name);
  }
  return names;
}

}  // namespace

TEST_SUITE("checkpoint/plan layout index") {
  TEST_CASE(
      "a file has its pieces by group, plane and offset, and whole tensors with their shape") {
    const SavedLayout layout = testing::example_manifest().layout;
    const LayoutIndex index(layout);
    const std::vector<TensorSpec> first = index.specs_of(index.pieces_of(0));
    CHECK(names_of(first) == std::vector<std::string>{"parameters/wte.weight",
                                                      "parameters/head.weight@0",
                                                      "exp_avg/wte.weight", "exp_avg/head.weight@0",
                                                      "parameters/boxed@0,0:0"});
    CHECK(first[0].shape == Shape{5, 20});
    CHECK(first[1].shape == Shape{16});
    CHECK(first[2].dtype == DType::BFloat16);
    CHECK(first[4].shape == Shape{3});
    CHECK(first[4].dtype == DType::Float64);
    CHECK(names_of(index.specs_of(index.pieces_of(1))) ==
          std::vector<std::string>{"parameters/head.weight@16", "exp_avg/head.weight@16",
                                   "parameters/boxed@0,0:3", "parameters/boxed@0,2:0"});
  }

  TEST_CASE("the pieces of all files are the tensors, and have the bytes that are counted") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      CAPTURE(seed);
      testing::Draws draws(seed);
      const std::int64_t num_files = draws.next(1, 5);
      SavedLayout layout;
      layout.groups.push_back({.name = "g",
                               .part = 0,
                               .planes = {{.name = "parameters", .dtype = DType::Float32},
                                          {.name = "s", .dtype = DType::Float64}}});
      std::int64_t offset = 0;
      std::int64_t numel = 0;
      for (int i = 0; i < 6; ++i) {
        const Shape shape = testing::random_shape(draws);
        const std::string name = std::to_string(i);
        numel += shape.numel();
        if (draws.next(0, 2) == 0) {
          layout.tensors.push_back(testing::boxed_tensor(draws, name, shape, num_files));
          continue;
        }
        offset += draws.next(0, 3);
        layout.tensors.push_back(
            {.name = name, .shape = shape, .group = 0, .offset = offset, .pieces = {}, .step = {}});
        offset += shape.numel();
      }
      layout.groups[0].part = offset / num_files + 1;
      check_layout("test", layout, num_files);
      const std::vector<std::uint64_t> expected = data_nbytes_of_files(layout, num_files);
      const LayoutIndex index(layout);
      std::int64_t found = 0;
      for (std::int64_t file = 0; file < num_files; ++file) {
        const std::vector<HeldPiece> pieces = index.pieces_of(file);
        std::uint64_t nbytes = 0;
        for (const TensorSpec& spec : index.specs_of(pieces)) {
          CHECK(spec.shape.numel() > 0);
          found += spec.shape.numel();
          nbytes += static_cast<std::uint64_t>(spec.shape.numel()) * size_of(spec.dtype);
        }
        CHECK(nbytes == expected[static_cast<std::size_t>(file)]);
      }
      CHECK(found == 2 * numel);
    }
  }
}

}  // namespace fsdptrain::checkpoint
