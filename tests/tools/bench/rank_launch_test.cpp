#include "tools/bench/rank_launch.h"

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain::tools {

TEST_SUITE("tools/bench") {
  TEST_CASE("streams of ranks are two numbers") {
    const RankStreams streams = parse_rank_streams(to_text({.input = 10, .output = 12}));
    CHECK(streams.input == 10);
    CHECK(streams.output == 12);
    for (const char* text : {"", "3", "3,", ",4", "3,x", "-1,4", "3,4,5"}) {
      CAPTURE(text);
      CHECK_THROWS_AS(parse_rank_streams(text), ConfigError);
    }
  }
}

}  // namespace fsdptrain::tools
