#include "comm/init/debug_break.h"

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

std::optional<BreakPoint> read(const char* text, int world_size = 4) {
  return read_break_point(
      [text](std::string_view name) {
        return name == "FSDPTRAIN_BREAK_RANK" && text != nullptr ? std::optional<std::string>(text)
                                                                 : std::nullopt;
      },
      world_size);
}

}  // namespace

TEST_SUITE("comm/debug_break") {
  TEST_CASE("a rank alone, or one at a step, is a break point") {
    CHECK_FALSE(read(nullptr));
    CHECK_FALSE(read(""));
    REQUIRE(read("3"));
    CHECK(read("3")->rank == 3);
    CHECK_FALSE(read("3")->step);
    CHECK(read("0@12000000000")->step == 12000000000);
  }

  TEST_CASE("what is no break point is refused with what it must be") {
    for (const char* text : {"x", "-1", "1@", "@5", "1@-2", "1@x", "1 @2", "1@2@3", "99999999999",
                             "1@99999999999999999999", "\x1b"}) {
      CAPTURE(text);
      CHECK_THROWS_WITH_AS(
          read(text),
          doctest::Contains("FSDPTRAIN_BREAK_RANK must be RANK or RANK@STEP, like 2 "
                            "or 2@100, got \""),
          ConfigError);
    }
    CHECK_THROWS_WITH_AS(read("4"), doctest::Contains("the rank must be one of 0 to 3, got 4"),
                         ConfigError);
  }

  TEST_CASE("a rank that stops goes on when its job is stopped") {
    DebugBreak here({BreakPoint{0, std::nullopt}}, 0);
    int num_looks = 0;
    here.at(0, [&] { return ++num_looks == 2; });
    CHECK(num_looks == 2);
  }

  TEST_CASE("other ranks, and other steps, do not stop") {
    DebugBreak unset(std::nullopt, 0);
    CHECK_FALSE(unset.is_set());
    unset.at(0);
    DebugBreak other({BreakPoint{1, std::nullopt}}, 0);
    CHECK(other.is_set());
    other.at(0);
    DebugBreak later({BreakPoint{0, 5}}, 0);
    later.at(4);
    later.at(6);
  }
}

}  // namespace fsdptrain::comm
