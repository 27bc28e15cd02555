#include "runtime/base/parse_number.h"

#include <cstdint>

#include <doctest/doctest.h>

namespace fsdptrain {

TEST_SUITE("base/parse_number") {
  TEST_CASE("a number is digits and nothing else, and fits its type") {
    CHECK(parse_number("0") == 0);
    CHECK(parse_number("0042") == 42);
    CHECK(parse_number("2147483647") == 2147483647);
    CHECK(parse_number<std::int64_t>("2147483648") == 2147483648);
    for (const char* text : {"", "-1", "-0", "+1", " 1", "1 ", "1x", "x", "0x1", "1.0", "1e3",
                             "2147483648", "99999999999999999999"}) {
      CAPTURE(text);
      CHECK_FALSE(parse_number(text).has_value());
    }
  }
}

}  // namespace fsdptrain
