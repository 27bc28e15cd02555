#include "runtime/tensor/views.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace fsdptrain {
namespace {

// 0, 1, 2, ... so that an element is its position in the storage.
Tensor positions(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from<std::int64_t>(values, {count});
}

// Every shape of up to `dims` dimensions with `numel` elements.
void factorize(std::int64_t numel, int dims, Shape prefix, std::vector<Shape>& found) {
  if (numel == 1) {
    found.push_back(prefix);
  }
  if (dims == 0) {
    return;
  }
  for (std::int64_t size = 1; size <= numel; ++size) {
    if (numel % size == 0) {
      Shape longer = prefix;
      longer.push_back(size);
      factorize(numel / size, dims - 1, longer, found);
    }
  }
}

// The strides that a reshape must have, found by looking at every element: none if the elements
// do not lie on a grid.
std::optional<std::vector<std::int64_t>> brute_force_strides(const std::vector<double>& elements,
                                                             const Shape& shape) {
  const Strides steps = Strides::contiguous(shape);
  std::vector<std::int64_t> strides;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    const auto next = static_cast<std::size_t>(steps[dim]);
    strides.push_back(shape[dim] == 1 ? 0
                                      : static_cast<std::int64_t>(elements[next] - elements[0]));
  }
  for (std::size_t i = 0; i < elements.size(); ++i) {
    auto expected = static_cast<std::int64_t>(elements[0]);
    for (int dim = 0; dim < shape.dims(); ++dim) {
      expected += static_cast<std::int64_t>(i) / steps[dim] % shape[dim] *
                  strides[static_cast<std::size_t>(dim)];
    }
    if (expected != static_cast<std::int64_t>(elements[i])) {
      return std::nullopt;
    }
  }
  return strides;
}

// A random layout of few elements: sizes and strides of any kind, 0 included.
Tensor random_layout(std::uint64_t seed) {
  Shape shape;
  Strides strides;
  const Philox choice = philox(seed, 0, 1);
  const int dims = static_cast<int>(choice.word[0] % 5);
  std::int64_t dense = 1;
  for (int dim = 0; dim < dims; ++dim) {
    const Philox random = philox(seed, static_cast<std::uint64_t>(dim) + 1, 1);
    const std::int64_t size = std::array{1, 2, 3, 2, 4}[random.word[0] % 5];
    // Mostly dense runs, some gaps, some repeats.
    const std::int64_t stride = random.word[1] % 8 == 0   ? 0
                                : random.word[1] % 4 == 1 ? dense * 2
                                                          : dense;
    shape.insert(0, size);
    strides.insert(0, stride);
    dense = std::max<std::int64_t>(dense, stride * size);
  }
  const Tensor x = positions(dense * 2 + 8).alias(shape, strides, 3);
  if (dims < 2 || choice.word[1] % 2 == 0) {
    return x;
  }
  const int a = static_cast<int>(choice.word[2]) % dims;
  return views::transpose(x, a < 0 ? -a : a, dims - 1);
}

}  // namespace

TEST_SUITE("runtime/tensor/views") {
  TEST_CASE("reshape finds a layout exactly where one exists") {
    int possible = 0;
    int impossible = 0;
    for (std::uint64_t seed = 0; seed < 250; ++seed) {
      const Tensor x = random_layout(seed);
      const std::vector<double> elements = x.to_vector();
      std::vector<Shape> shapes;
      factorize(x.numel(), 4, {}, shapes);
      for (const Shape& shape : shapes) {
        CAPTURE(seed);
        CAPTURE(fmt::format("{} {} -> {}", x.shape(), x.strides(), shape));
        const bool exists = brute_force_strides(elements, shape).has_value();
        REQUIRE(views::can_reshape(x, shape) == exists);
        if (exists) {
          ++possible;
          const Tensor y = views::reshape(x, shape);
          REQUIRE(y.shape() == shape);
          REQUIRE(y.storage() == x.storage());
          REQUIRE(y.to_vector() == elements);
        } else {
          ++impossible;
        }
      }
    }
    CHECK(possible > 1000);
    CHECK(impossible > 1000);
  }

  TEST_CASE("reshape of nothing is any shape of nothing") {
    const Tensor x = Tensor::zeros({3, 0, 5});
    CHECK(views::reshape(x, {0}).shape() == Shape{0});
    CHECK(views::reshape(x, {7, 0}).shape() == Shape{7, 0});
    CHECK(views::reshape(views::transpose(x, 0, 2), {2, 0, 9}).numel() == 0);
  }

  TEST_CASE("reshape names the shapes that do not fit") {
    const Tensor x = positions(6).alias({2, 3}, {3, 1}, 0);
    CHECK_THROWS_WITH_AS(views::reshape(x, {4}),
                         doctest::Contains("reshape: shape [2, 3] has not as many elements as [4]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(
        views::reshape(views::transpose(x, 0, 1), {6}),
        doctest::Contains("reshape: [3, 2] with strides [1, 3] cannot become [6] in place"),
        ShapeError);
  }

  TEST_CASE("one size of a reshape may be left open") {
    const Tensor x = positions(24);
    const auto infer = [&](std::vector<std::int64_t> sizes) {
      return views::infer_shape(x, sizes);
    };
    CHECK(infer({-1}) == Shape{24});
    CHECK(infer({2, -1, 3}) == Shape{2, 4, 3});
    CHECK(infer({24, -1}) == Shape{24, 1});
    CHECK(infer({2, 12}) == Shape{2, 12});
    CHECK_THROWS_WITH_AS(infer({-1, -1}),
                         doctest::Contains("reshape: at most one size may be -1, got [-1, -1]"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(infer({5, -1}),
                         doctest::Contains("reshape: shape [24] does not divide into [5, -1]"),
                         ShapeError);
    CHECK_THROWS_AS(infer({0, -1}), ShapeError);
    CHECK_THROWS_AS(infer({-2, -1}), ShapeError);
    CHECK_THROWS_AS(infer({-2, -3}), ShapeError);
    constexpr std::int64_t kBig = std::int64_t{1} << 40;
    CHECK_THROWS_WITH_AS(infer({kBig, kBig, -1}), doctest::Contains("overflows 64 bits"),
                         ShapeError);
  }

  TEST_CASE("transpose and permute move dimensions") {
    const Tensor x = positions(30).alias({2, 3, 5}, {15, 5, 1}, 0);
    const Tensor t = views::transpose(x, 0, -1);
    CHECK(t.shape() == Shape{5, 3, 2});
    const Tensor p = views::permute(x, std::array{2, 0, -2});
    CHECK(p.shape() == Shape{5, 2, 3});
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t j = 0; j < 3; ++j) {
        for (std::int64_t k = 0; k < 5; ++k) {
          REQUIRE(t.item((k * 3 + j) * 2 + i) == x.item((i * 3 + j) * 5 + k));
          REQUIRE(p.item((k * 2 + i) * 3 + j) == x.item((i * 3 + j) * 5 + k));
        }
      }
    }
    CHECK(views::transpose(x, 1, 1).shape() == x.shape());
    CHECK_THROWS_WITH_AS(views::transpose(x, 0, 3), doctest::Contains("transpose: dim must be"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(views::permute(x, std::array{0, 1}),
                         doctest::Contains("permute: needs 3 dims for shape [2, 3, 5], got 2"),
                         ShapeError);
    CHECK_THROWS_WITH_AS(views::permute(x, std::array{0, 1, -2}),
                         doctest::Contains("permute: dim 1 is named twice"), ShapeError);
  }

  TEST_CASE("narrow takes a part of one dimension") {
    const Tensor x = positions(12).alias({3, 4}, {4, 1}, 0);
    CHECK(views::narrow(x, 1, 1, 2).to_vector() == std::vector<double>{1, 2, 5, 6, 9, 10});
    CHECK(views::narrow(x, -2, 2, 1).to_vector() == std::vector<double>{8, 9, 10, 11});
    CHECK(views::narrow(x, 0, 0, 3).to_vector() == x.to_vector());
    CHECK(views::narrow(x, 1, 4, 0).shape() == Shape{3, 0});
    CHECK(views::narrow(x, 0, 3, 0).shape() == Shape{0, 4});
    CHECK(views::narrow(Tensor::zeros({0, 6}), 1, 2, 3).shape() == Shape{0, 3});
    CHECK_THROWS_WITH_AS(views::narrow(x, 1, 3, 2),
                         doctest::Contains("narrow: [3, 3 + 2) is outside dim 1 of shape [3, 4]"),
                         ShapeError);
    CHECK_THROWS_AS(views::narrow(x, 1, -1, 2), ShapeError);
    CHECK_THROWS_AS(views::narrow(x, 1, 0, -1), ShapeError);
    CHECK_THROWS_AS(views::narrow(x, 1, std::int64_t{1} << 62, std::int64_t{1} << 62), ShapeError);
  }

  TEST_CASE("expand repeats sizes of one and adds dimensions in front") {
    const Tensor x = positions(3).alias({3, 1}, {1, 1}, 0);
    CHECK(views::expand(x, {3, 2}).to_vector() == std::vector<double>{0, 0, 1, 1, 2, 2});
    CHECK(views::expand(x, {2, 3, 1}).to_vector() == std::vector<double>{0, 1, 2, 0, 1, 2});
    CHECK(views::expand(x, {3, 0}).numel() == 0);
    CHECK(views::expand(positions(1), {1, 5}).to_vector() == std::vector<double>{0, 0, 0, 0, 0});
    CHECK_THROWS_WITH_AS(views::expand(x, {4, 1}),
                         doctest::Contains("expand: shape [3, 1] does not expand to [4, 1]"),
                         ShapeError);
    CHECK_THROWS_AS(views::expand(x, {3}), ShapeError);
  }

  TEST_CASE("squeeze undoes unsqueeze at every place") {
    const Tensor x = positions(6).alias({3, 2}, {1, 3}, 0);
    for (const int dim : {0, 1, 2, -1, -2, -3}) {
      CAPTURE(dim);
      const Tensor y = views::unsqueeze(x, dim);
      CHECK(y.dims() == 3);
      CHECK(y.size(dim) == 1);
      CHECK(y.to_vector() == x.to_vector());
      const Tensor z = views::squeeze(y, dim);
      CHECK(z.shape() == x.shape());
      CHECK(z.strides() == x.strides());
    }
    CHECK_THROWS_WITH_AS(views::squeeze(x, 1),
                         doctest::Contains("squeeze: dim 1 of shape [3, 2] is not 1"), ShapeError);
    CHECK_THROWS_AS(views::unsqueeze(x, 3), ShapeError);
    const Tensor full = Tensor::zeros({1, 1, 1, 1, 1, 1, 1, 1});
    CHECK_THROWS_WITH_AS(views::unsqueeze(full, 0), doctest::Contains("at most 8 dimensions"),
                         ShapeError);
  }
}

}  // namespace fsdptrain
