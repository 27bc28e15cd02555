#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tools/launch/line_splitter.h"
#include "tools/launch/rank_output.h"

namespace fsdptrain::tools {
namespace {

struct Taken final : LineTaker {
  void line(std::string_view text) override { lines.emplace_back(text); }
  void progress(std::string_view text) override { lines.push_back("~" + std::string(text)); }

  std::vector<std::string> lines;
};

using Lines = std::vector<std::string>;

// The bytes in pieces of this size.
Lines split(std::string_view bytes, std::size_t piece, bool has_progress = false) {
  Taken taken;
  LineSplitter splitter(has_progress);
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    splitter.feed(bytes.substr(0, piece), taken);
  }
  splitter.finish(taken);
  return taken.lines;
}

}  // namespace

TEST_SUITE("tools/launch/output") {
  TEST_CASE("lines come whole, however their bytes come, and the last needs no end") {
    for (const std::size_t piece : {1, 2, 3, 100}) {
      CAPTURE(piece);
      CHECK(split("one\n\ntwo\nthree", piece) == Lines{"one", "", "two", "three"});
      CHECK(split("one\n", piece) == Lines{"one"});
      CHECK(split("", piece).empty());
      CHECK(split(std::string("a\0b\xff\n", 5), piece) == Lines{std::string("a\0b\xff", 4)});
    }
  }

  TEST_CASE("a line that is too long comes in parts, and none of it is lost") {
    const std::size_t most = LineSplitter::kMaxLine;
    for (const std::size_t size : {most - 1, most, most + 1, 3 * most + 7}) {
      for (const std::size_t piece : {std::size_t{1000}, 10 * most}) {
        CAPTURE(size);
        CAPTURE(piece);
        const std::string text(size, 'x');
        std::string all;
        for (const std::string& part : split(text + "\nend", piece)) {
          CHECK(part.size() <= most);
          all += part;
        }
        CHECK(all == text + "end");
      }
    }
  }

  TEST_CASE("progress is what stands behind the last carriage return, and no line") {
    for (const std::size_t piece : {1, 3, 100}) {
      CAPTURE(piece);
      const Lines lines =
          split("one\n\r 10 %\x1b[K\r 20 %\x1b[K\r\x1b[Ktwo\n\r 30 %\x1b[K", piece, true);
      CHECK(lines.front() == "one");
      CHECK(lines[lines.size() - 2] == "two");
      CHECK(lines.back() == "~ 30 %");
      CHECK(std::count(lines.begin(), lines.end(), "two") == 1);
    }
    CHECK(split("\r 10 %\x1b[K\n", 100) == Lines{"\r 10 %\x1b[K"});
  }

  TEST_CASE("of what a rank printed, the last twenty lines are kept, short and printable") {
    LastLines last;
    for (int i = 0; i < 25; ++i) {
      last.add("line " + std::to_string(i));
    }
    CHECK(last.lines().size() == 20);
    CHECK(last.lines().front() == "line 5");
    last.add("\x1b[2J");
    CHECK(last.lines().back() == "\\x1b[2J");
    last.add(std::string(5000, 'x'));
    CHECK(last.lines().back() == std::string(1000, 'x') + " ...");
  }
}

}  // namespace fsdptrain::tools
