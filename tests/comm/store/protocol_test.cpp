#include "comm/store/protocol.h"

#include <vector>

#include <doctest/doctest.h>

#include "comm/store/messages.h"
#include "comm/store/wire.h"

namespace fsdptrain::comm::store {
namespace {

std::string header(std::uint32_t length, int type, int version) {
  return WireWriter()
      .u32(length)
      .u8(static_cast<std::uint8_t>(type))
      .u8(static_cast<std::uint8_t>(version))
      .take();
}

// All frames of `bytes`, fed in pieces of `piece` bytes.
std::vector<std::string> read_all(std::string_view bytes, std::size_t piece) {
  FrameReader reader(1024);
  std::vector<std::string> bodies;
  while (!bytes.empty()) {
    std::string_view fed = bytes.substr(0, piece);
    bytes.remove_prefix(fed.size());
    while (const std::optional<Frame> frame = reader.read(fed)) {
      bodies.emplace_back(frame->body());
    }
    CHECK(fed.empty());
    CHECK(reader.buffered_bytes() <= 1024);
  }
  CHECK(reader.buffered_bytes() == 0);
  return bodies;
}

void read(std::string bytes, std::size_t max_frame) {
  FrameReader reader(max_frame);
  std::string_view rest = bytes;
  reader.read(rest);
}

}  // namespace

TEST_SUITE("comm/store/protocol") {
  TEST_CASE("frames come out the same however their bytes are cut") {
    const std::string bytes = encode_frame(FrameType::Hello, "") +
                              encode_frame(FrameType::Set, std::string(1000, 'x')) +
                              encode_frame(FrameType::Farewell, std::string("\0\n\xff", 3));
    const std::vector<std::string> bodies = {"", std::string(1000, 'x'),
                                             std::string("\0\n\xff", 3)};
    for (const std::size_t piece : {1, 2, 5, 7, 500, 5000}) {
      CAPTURE(piece);
      CHECK(read_all(bytes, piece) == bodies);
    }
  }

  TEST_CASE("a frame is refused by its header, before any of its body has come") {
    CHECK_THROWS_WITH_AS(read(header(0, 1, 1), 256), doctest::Contains("length 2 to 252, got 0"),
                         ProtocolError);
    CHECK_THROWS_WITH_AS(read(header(1, 1, 1), 256), doctest::Contains("got 1"), ProtocolError);
    CHECK_NOTHROW(read(header(252, 1, 1), 256));
    CHECK_THROWS_WITH_AS(read(header(253, 1, 1), 256), doctest::Contains("got 253"), ProtocolError);
    CHECK_THROWS_WITH_AS(read(header(0xffffffff, 1, 1), kMaxFrame),
                         doctest::Contains("got 4294967295"), ProtocolError);
    CHECK_THROWS_WITH_AS(read(header(2, 1, 2), 256), doctest::Contains("must be 1, got 2; use the"),
                         ProtocolError);
    for (const int type : {0, 5, 15, 24, 31, 36, 255}) {
      CAPTURE(type);
      CHECK_THROWS_WITH_AS(read(header(2, type, 1), 256), doctest::Contains("type of a frame"),
                           ProtocolError);
    }
  }

  TEST_CASE("a reader holds no more than it was fed, whatever length a frame claims") {
    FrameReader reader(kMaxFrame);
    const std::string bytes = header(16 << 20, 17, 1);
    std::string_view rest = bytes;
    CHECK_FALSE(reader.read(rest));
    CHECK(reader.buffered_bytes() == 6);
  }

  TEST_CASE("keys are paths of printable ASCII") {
    for (const std::string& key : {std::string("a"), std::string("rank/3/address"),
                                   std::string("a:b.c-d_~!/..."), std::string(kMaxKey, 'k')}) {
      CAPTURE(key);
      CHECK_NOTHROW(check_key(key));
    }
    for (const std::string& key :
         {std::string(), std::string(kMaxKey + 1, 'k'), std::string("a\0b", 3), std::string("a\nb"),
          std::string("a b"), std::string("\xc3\xa4"), std::string("../a"), std::string("a/.."),
          std::string("a/./b"), std::string("/a"), std::string("a/"), std::string("a//b")}) {
      CAPTURE(key);
      CHECK_THROWS_AS(check_key(key), ProtocolError);
    }
  }

  TEST_CASE("only rank 3 writes below rank/3") {
    CHECK(may_write(3, "rank/3/address"));
    CHECK(may_write(3, "ranks/4"));
    CHECK_FALSE(may_write(3, "rank/4/address"));
    CHECK_FALSE(may_write(3, "rank/33/address"));
    CHECK_FALSE(may_write(33, "rank/3/address"));
    CHECK_FALSE(may_write(3, "rank/3"));
    CHECK_FALSE(may_write(3, "rank/03/address"));
  }

  TEST_CASE("text of peers cannot steer a terminal or forge a line") {
    CHECK(printable("layer \"q\" \xc3\xa4") == "layer \"q\" \xc3\xa4");
    CHECK(printable("") == "");
    CHECK(printable("\"") == "\"");
    CHECK(printable("a\nerror: b\r\t\x1b[2J\x7f") == "a\\nerror: b\\r\\t\\x1b[2J\\x7f");
    CHECK(printable("a\\n") == "a\\\\n");
    CHECK(printable(std::string_view("\0", 1)) == "\\x00");
    CHECK(printable("\xff\xc3") == "\\xff\\xc3");
    // A control character of the second block, and one that turns the order of what follows.
    CHECK(printable("\xc2\x9b") == "\\x9b");
    CHECK(printable("\xe2\x80\xae") == "\\u202e");
  }

  TEST_CASE("requests come through unchanged") {
    const Request request{.type = FrameType::CompareSet,
                          .id = 7,
                          .keys = {"a/b"},
                          .value = std::string("\0x", 2),
                          .expected = ""};
    const Request read = decode_request(request.type, encode_request(request));
    CHECK(read.id == 7);
    CHECK(read.keys == request.keys);
    CHECK(read.value == request.value);
    CHECK(read.expected == request.expected);
    CHECK(decode_request(FrameType::Add,
                         encode_request({.type = FrameType::Add, .keys = {"a"}, .delta = -5}))
              .delta == -5);
    CHECK(decode_request(FrameType::Wait,
                         encode_request({.type = FrameType::Wait, .keys = {"a", "b"}}))
              .keys == std::vector<std::string>{"a", "b"});
  }

  TEST_CASE("requests that are cut, longer or beyond a limit are refused") {
    const std::string set =
        encode_request({.type = FrameType::Set, .id = 1, .keys = {"k"}, .value = "value"});
    for (std::size_t nbytes = 0; nbytes < set.size(); ++nbytes) {
      CAPTURE(nbytes);
      CHECK_THROWS_AS(decode_request(FrameType::Set, set.substr(0, nbytes)), ProtocolError);
    }
    CHECK_THROWS_WITH_AS(decode_request(FrameType::Set, set + "x"),
                         doctest::Contains("must end here"), ProtocolError);
    CHECK_THROWS_WITH_AS(decode_request(FrameType::Reply, set), doctest::Contains("got 33"),
                         ProtocolError);
    const auto keys = [](std::size_t count) {
      return encode_request(
          {.type = FrameType::Wait, .id = 1, .keys = std::vector<std::string>(count, "k")});
    };
    CHECK_THROWS_AS(decode_request(FrameType::Wait, keys(0)), ProtocolError);
    CHECK(decode_request(FrameType::Wait, keys(1024)).keys.size() == 1024);
    CHECK_THROWS_WITH_AS(decode_request(FrameType::Wait, keys(1025)),
                         doctest::Contains("1 to 1024 keys, got 1025"), ProtocolError);
    const auto value = [](FrameType type, std::size_t nbytes) {
      return encode_request(
          {.type = type, .id = 1, .keys = {"k"}, .value = std::string(nbytes, 'v')});
    };
    CHECK_NOTHROW(decode_request(FrameType::Set, value(FrameType::Set, kMaxValue)));
    CHECK_THROWS_AS(decode_request(FrameType::Set, value(FrameType::Set, kMaxValue + 1)),
                    ProtocolError);
    CHECK_THROWS_AS(decode_request(FrameType::ReportFailure, value(FrameType::ReportFailure, 4097)),
                    ProtocolError);
  }

  TEST_CASE("a compare_set of the largest values fits a frame") {
    const std::string body = encode_request({.type = FrameType::CompareSet,
                                             .keys = {std::string(kMaxKey, 'k')},
                                             .value = std::string(kMaxValue, 'v'),
                                             .expected = std::string(kMaxValue, 'e')});
    CHECK(kHeaderBytes + kSealBytes + body.size() <= kMaxFrame);
  }
}

}  // namespace fsdptrain::comm::store
