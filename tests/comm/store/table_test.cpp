#include "comm/store/table.h"

#include <limits>

#include <doctest/doctest.h>

#include "comm/store/messages.h"
#include "comm/store/protocol.h"

TEST_SUITE("comm/store/table") {
  using namespace fsdptrain::comm::store;

  TEST_CASE("a key has its last value") {
    Table table;
    CHECK(table.find("a") == nullptr);
    table.set("a", "one");
    table.set("a", "");
    REQUIRE(table.find("a") != nullptr);
    CHECK(*table.find("a") == "");
    CHECK(table.num_keys() == 1);
    CHECK(table.nbytes() == 1);
  }

  TEST_CASE("add counts from 0, stores 8 bytes, and refuses what is no number") {
    Table table;
    CHECK(table.add("n", 5) == 5);
    CHECK(table.add("n", -7) == -2);
    CHECK(*table.find("n") == std::string("\xfe\xff\xff\xff\xff\xff\xff\xff"));
    table.set("text", "seven");
    CHECK_THROWS_WITH_AS(table.add("text", 1), doctest::Contains("'text' has 5 bytes"),
                         RejectedError);
    table.set("n", encode_number(std::numeric_limits<std::int64_t>::max()));
    CHECK_THROWS_WITH_AS(table.add("n", 1), doctest::Contains("leaves 64 bits"), RejectedError);
    CHECK(table.add("n", 0) == std::numeric_limits<std::int64_t>::max());
  }

  TEST_CASE("compare_set sets only where the value is the expected one") {
    Table table;
    CHECK_FALSE(table.compare_set("a", "", "x"));
    CHECK(table.find("a") == nullptr);
    CHECK(table.compare_set("a", std::nullopt, "x"));
    CHECK_FALSE(table.compare_set("a", std::nullopt, "y"));
    CHECK_FALSE(table.compare_set("a", "y", "z"));
    CHECK(*table.find("a") == "x");
    CHECK(table.compare_set("a", "x", "z"));
    CHECK(*table.find("a") == "z");
  }

  TEST_CASE("keys and values together take 64 MiB, to the byte") {
    Table table;
    for (int i = 0; i < 7; ++i) {
      table.set(std::to_string(i), std::string(kMaxValue, 'v'));
    }
    const std::size_t left = kMaxStored - table.nbytes();
    CHECK_THROWS_WITH_AS(table.set("7", std::string(left, 'v')),
                         doctest::Contains("they would take 67108865"), RejectedError);
    CHECK(table.find("7") == nullptr);
    table.set("7", std::string(left - 1, 'v'));
    CHECK(table.nbytes() == kMaxStored);
    CHECK_THROWS_AS(table.set("8", ""), RejectedError);
    CHECK_THROWS_AS(table.set("7", std::string(left, 'v')), RejectedError);
    CHECK(table.find("7")->size() == left - 1);
    table.set("0", "");
    CHECK(table.nbytes() == kMaxStored - kMaxValue);
  }

  TEST_CASE("65,536 keys fit, and those can still be changed") {
    Table table;
    for (std::size_t i = 0; i < kMaxKeys; ++i) {
      table.set(std::to_string(i), "");
    }
    CHECK_THROWS_WITH_AS(table.set("more", ""), doctest::Contains("at most 65536 keys"),
                         RejectedError);
    CHECK_THROWS_AS(table.add("more", 1), RejectedError);
    CHECK_THROWS_AS(table.compare_set("more", std::nullopt, ""), RejectedError);
    CHECK_NOTHROW(table.set("0", "new"));
  }
}
