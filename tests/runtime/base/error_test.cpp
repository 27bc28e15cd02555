#include "runtime/base/error.h"

#include <string>

#include <doctest/doctest.h>

#include "runtime/base/shape.h"

namespace fsdptrain {

TEST_SUITE("runtime/base/error") {
  TEST_CASE("an error says what, and where from the source folder on") {
    std::string text;
    int line = 0;
    try {
      line = __LINE__ + 1;
      fail<ShapeError>("add: shapes {} and {} differ", Shape{2}, Shape{3});
    } catch (const Error& error) {
      text = error.what();
    }
    CHECK(
        text ==
        fmt::format("add: shapes [2] and [3] differ [tests/runtime/base/error_test.cpp:{}]", line));
  }

  TEST_CASE("check throws its type only if the condition fails") {
    CHECK_NOTHROW(check<DTypeError>(true, "not {}", 1));
    CHECK_THROWS_WITH_AS(check<DTypeError>(false, "got {}", 7), doctest::Contains("got 7 ["),
                         DTypeError);
    CHECK_THROWS_WITH_AS(check(false, "plain {}", "text"), doctest::Contains("plain text ["),
                         Error);
  }

  TEST_CASE("context goes in front and keeps the type") {
    const auto raise = [] {
      try {
        try {
          fail<OutOfMemoryError>("no {} bytes", 5);
        } catch (Error& error) {
          error.add_context("attn");
          throw;
        }
      } catch (Error& error) {
        error.add_context("h.0");
        throw;
      }
    };
    CHECK_THROWS_WITH_AS(raise(), doctest::Contains("h.0: attn: no 5 bytes ["), OutOfMemoryError);
  }
}

}  // namespace fsdptrain
