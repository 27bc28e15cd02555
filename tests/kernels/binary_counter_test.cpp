#include "kernels/functors/binary_counter.h"

#include <bit>
#include <memory>
#include <string>

#include <doctest/doctest.h>

namespace fsdptrain::kernels {
namespace {

const auto join = [](const std::string& left, const std::string& right) {
  return "(" + left + "+" + right + ")";
};

// The tree over [first, first + count) by its definition.
std::string tree(unsigned first, unsigned count) {
  if (count == 1) {
    return std::to_string(first);
  }
  const unsigned left = std::bit_floor(count - 1);
  return join(tree(first, left), tree(first + left, count - left));
}

}  // namespace

TEST_SUITE("kernels/binary_counter") {
  TEST_CASE("the order of a counter is the tree that splits at powers of two") {
    BinaryCounter<std::string, 8> counter;
    for (unsigned count = 1; count < 256; ++count) {
      CAPTURE(count);
      for (unsigned i = 0; i < count; ++i) {
        counter.push(std::to_string(i), join);
        REQUIRE(counter.size() == std::popcount(i + 1));
      }
      CHECK(counter.finish(join) == tree(0, count));
      // It starts anew.
      REQUIRE(counter.size() == 0);
    }
  }

  TEST_CASE("five and seven values are added as the documentation has it") {
    BinaryCounter<std::string, 3> counter;
    const auto of = [&](int count) {
      for (int i = 0; i < count; ++i) {
        counter.push(std::to_string(i), join);
      }
      return counter.finish(join);
    };
    CHECK(of(5) == "(((0+1)+(2+3))+4)");
    CHECK(of(7) == "(((0+1)+(2+3))+((4+5)+6))");
  }

  TEST_CASE("values that can only be moved are counted") {
    const auto add = [](std::unique_ptr<int> left, const std::unique_ptr<int>& right) {
      *left += *right;
      return left;
    };
    BinaryCounter<std::unique_ptr<int>, 4> counter;
    for (int i = 0; i < 11; ++i) {
      counter.push(std::make_unique<int>(i), add);
    }
    CHECK(*counter.finish(add) == 55);
  }
}

}  // namespace fsdptrain::kernels
