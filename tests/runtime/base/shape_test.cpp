#include "runtime/base/shape.h"

#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain {

TEST_SUITE("runtime/base/shape") {
  TEST_CASE("a shape counts its elements") {
    CHECK(Shape{}.numel() == 1);
    CHECK(Shape{0}.numel() == 0);
    CHECK(Shape{7}.numel() == 7);
    CHECK(Shape{2, 3, 5}.numel() == 30);
    CHECK(Shape{2, 0, 5}.numel() == 0);
    CHECK(Shape{2, 3, 5}.dims() == 3);
    CHECK(Shape{2, 3, 5}.back() == 5);
    CHECK(fmt::format("{}", Shape{2, 3, 5}) == "[2, 3, 5]");
    CHECK(fmt::format("{}", Shape{}) == "[]");
  }

  TEST_CASE("a shape refuses negative sizes and more elements than 64 bits count") {
    CHECK_THROWS_WITH_AS(Shape({2, -1}),
                         doctest::Contains("shape: sizes must not be negative, got [2, -1]"),
                         ShapeError);
    constexpr std::int64_t kBig = std::int64_t{1} << 32;
    CHECK_NOTHROW(Shape({kBig, kBig / 4}));
    CHECK_THROWS_WITH_AS(
        Shape({kBig, kBig / 2}),
        doctest::Contains("the number of elements of [4294967296, 2147483648] overflows 64 bits"),
        ShapeError);
    CHECK_THROWS_WITH_AS(Shape({0, kBig, kBig}), doctest::Contains("overflows 64 bits"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}),
                         doctest::Contains("at most 8 dimensions, got 9"), ShapeError);
  }

  TEST_CASE("sizes are inserted and erased at any place") {
    Shape shape{2, 3};
    shape.insert(0, 7);
    shape.insert(3, 11);
    shape.insert(2, 5);
    CHECK(shape == Shape{7, 2, 5, 3, 11});
    shape.erase(4);
    shape.erase(0);
    shape.erase(1);
    CHECK(shape == Shape{2, 3});
    CHECK(shape != Shape{2, 3, 1});
    for (int dims = 2; dims < kMaxDims; ++dims) {
      shape.push_back(1);
    }
    CHECK_THROWS_WITH_AS(shape.push_back(1), doctest::Contains("at most 8 dimensions"), ShapeError);
  }

  TEST_CASE("contiguous strides multiply up from the right") {
    CHECK(Strides::contiguous({}) == Strides{});
    CHECK(Strides::contiguous({5}) == Strides{1});
    CHECK(Strides::contiguous({2, 3, 5}) == Strides{15, 5, 1});
    CHECK(Strides::contiguous({2, 0, 5}) == Strides{5, 5, 1});
  }

  TEST_CASE("a layout is contiguous whatever the strides of sizes of one") {
    CHECK(is_contiguous({}, {}));
    CHECK(is_contiguous({2, 3}, {3, 1}));
    CHECK(is_contiguous({2, 1, 3}, {3, 99, 1}));
    CHECK(is_contiguous({1, 3}, {0, 1}));
    CHECK(is_contiguous({4, 0}, {17, 5}));
    CHECK_FALSE(is_contiguous({2, 3}, {1, 2}));
    CHECK_FALSE(is_contiguous({2, 3}, {4, 1}));
    CHECK_FALSE(is_contiguous({2, 3}, {0, 1}));
    CHECK_FALSE(is_contiguous({3}, {2}));
  }

  TEST_CASE("dims count from either end") {
    CHECK(normalize_dim("op", 0, 3) == 0);
    CHECK(normalize_dim("op", 2, 3) == 2);
    CHECK(normalize_dim("op", -1, 3) == 2);
    CHECK(normalize_dim("op", -3, 3) == 0);
    CHECK_THROWS_WITH_AS(normalize_dim("op", 3, 3),
                         doctest::Contains("op: dim must be in [-3, 3), got 3"), ShapeError);
    CHECK_THROWS_WITH_AS(normalize_dim("op", -4, 3), doctest::Contains("got -4"), ShapeError);
    CHECK_THROWS_WITH_AS(normalize_dim("op", 0, 0), doctest::Contains("got 0"), ShapeError);
  }

  TEST_CASE("shapes broadcast by the rule of NumPy") {
    struct Case {
      Shape a, b, expected;
    };
    for (const auto& [a, b, expected] :
         {Case{{}, {}, {}}, Case{{3}, {}, {3}}, Case{{3}, {1}, {3}}, Case{{2, 3}, {3}, {2, 3}},
          Case{{2, 1}, {1, 3}, {2, 3}}, Case{{5, 1, 7}, {3, 1}, {5, 3, 7}}, Case{{0}, {1}, {0}},
          Case{{2, 0}, {1, 1}, {2, 0}}, Case{{1, 3}, {0, 1}, {0, 3}}}) {
      CAPTURE(fmt::format("{} and {}", a, b));
      CHECK(broadcast_shapes("add", a, b) == expected);
      CHECK(broadcast_shapes("add", b, a) == expected);
    }
    CHECK_THROWS_WITH_AS(broadcast_shapes("add", {2}, {3}),
                         doctest::Contains("add: shapes [2] and [3] do not broadcast"), ShapeError);
    CHECK_THROWS_AS(broadcast_shapes("add", {0}, {2}), ShapeError);
    constexpr std::int64_t kBig = std::int64_t{1} << 32;
    CHECK_THROWS_WITH_AS(broadcast_shapes("add", {kBig, 1}, {1, kBig}),
                         doctest::Contains("add: the number of elements"), ShapeError);
  }
}

}  // namespace fsdptrain
