#include "runtime/base/quoted.h"

#include <random>
#include <string>

#include <doctest/doctest.h>

namespace fsdptrain {

TEST_SUITE("runtime/base/quoted") {
  TEST_CASE("text is text, and nothing else reaches a terminal") {
    CHECK(printable("") == "");
    CHECK(printable("plain \"text\"") == "plain \"text\"");
    CHECK(printable("a\nb\r\tc\x1b[31m\x7f") == "a\\nb\\r\\tc\\x1b[31m\\x7f");
    CHECK(printable("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
          "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    // Cut, alone, overlong, a surrogate, beyond Unicode, a control of two bytes.
    CHECK(printable("\xc2n\xff") == "\\xc2n\\xff");
    CHECK(printable("\xe2\x82") == "\\xe2\\x82");
    CHECK(printable("\x80") == "\\x80");
    CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");
    CHECK(printable("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
    CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");
    CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
    CHECK(printable("\xc2\x9b") == "\\x9b");
    CHECK(printable("\xe2\x80\xae") == "\\u202e");
    CHECK(printable("a\\n") == "a\\\\n");
    CHECK(in_quotes("a \"b\"\n") == "\"a \\\"b\\\"\\n\"");
  }

  TEST_CASE("any bytes become one printable line") {
    std::mt19937 random(1);
    for (int round = 0; round < 20000; ++round) {
      std::string bytes(random() % 12, '\0');
      for (char& byte : bytes) {
        byte = static_cast<char>(random());
      }
      for (const char c : printable(bytes)) {
        CHECK(static_cast<unsigned char>(c) >= 0x20);
      }
    }
  }

  TEST_CASE("names of others are shown escaped and cut") {
    CHECK(shown("a\x1b[31m\n") == R"("a\x1b[31m\n")");
    CHECK(shown(std::string(1'000'000, 'x')) == '"' + std::string(200, 'x') + "\"...");
  }
}

}  // namespace fsdptrain
