#include <string>

#include <doctest/doctest.h>

#include "checkpoint/format/manifest.h"
#include "runtime/base/error.h"
#include "tests/support/example_manifest.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::replaced;
using testing::resealed;

// The example's text with `from` as `to` and a digest that fits must be refused with `message`.
void check_refused(std::string_view from, std::string_view to, const char* message) {
  CAPTURE(from);
  CAPTURE(to);
  CAPTURE(message);
  static const std::string text = render_manifest(testing::example_manifest());
  const std::string hostile = resealed(replaced(text, from, to));
  CHECK_THROWS_WITH_AS(parse_manifest("step-7/manifest.json", hostile), doctest::Contains(message),
                       DataError);
  CHECK_THROWS_WITH_AS(parse_manifest("step-7/manifest.json", hostile),
                       doctest::Contains("step-7/manifest.json: "), DataError);
}

void check_member_refused(const char* member, const char* from, const char* to,
                          const char* message) {
  const std::string name = std::string("\"") + member + "\":";
  check_refused(name + from, name + to, message);
}

constexpr const char* kFile = "{\"name\":\"rank-00001.safetensors\"";

void check_file_name_refused(const char* name, const char* message) {
  check_refused(kFile, std::string("{\"name\":") + name, message);
}

constexpr const char* kHead =
    "{\"name\":\"head.weight\",\"shape\":[7,8],\"group\":0,\"offset\":112}";

void check_head_refused(const std::string& record, const char* message) {
  check_refused(kHead, record, message);
}

}  // namespace

TEST_SUITE("checkpoint/format hostile manifest") {
  TEST_CASE("paths: only plain names in the folder are files") {
    const char* plain = "a file's name has 1 to 255";
    check_file_name_refused("\"../x\"", plain);
    check_file_name_refused("\"/etc/passwd\"", plain);
    check_file_name_refused("\"a//b\"", plain);
    check_file_name_refused("\".\"", plain);
    check_file_name_refused("\"..\"", plain);
    check_file_name_refused("\"\"", plain);
    check_file_name_refused("\".hidden\"", plain);
    check_file_name_refused("\"a\\u0000b\"", plain);
    check_file_name_refused("\"a\\nb\"", plain);
    check_file_name_refused("\"manifest.json\"", plain);
    // Two names in one case cannot differ in case.
    check_file_name_refused("\"Rank-00000.safetensors\"", plain);
    check_file_name_refused("\"rank-00000.safetensors\"", "two files are named");
    check_file_name_refused("7", "files 1: name must be a string of at most 4096 bytes, got 7");
  }

  TEST_CASE("counts: ranks, files, sizes") {
    check_member_refused("num_ranks", "2", "0", "num_ranks must be an integer from 1 to");
    check_member_refused("num_ranks", "2", "-1", "num_ranks must be an integer from 1 to");
    check_member_refused("num_ranks", "2", "2147483648", "num_ranks must be an integer from 1 to");
    check_member_refused("num_ranks", "2", "3", "num_ranks is 3, but there are 2 files");
    check_member_refused("nbytes", "4096", "719", "has 719 bytes, but the tensors in it have 720");
    check_member_refused("nbytes", "4096", "-1", "nbytes must be an integer");
    check_member_refused("nbytes", "4096", "1e3", "nbytes must be an integer");
    check_member_refused("nbytes", "4096", "9223372036854775808", "nbytes must be an integer");
    check_member_refused("nbytes", "4096", "18446744073709551616", "nbytes must be an integer");
    check_member_refused("step", "1000", "-1", "step must be an integer from 0");
    check_member_refused("step", "1000", "\"7\"", "step must be an integer from 0");
    check_refused("\"step\":1000}", "\"step\":-5}", "tensors 0: step must be an integer from 0");
  }

  TEST_CASE("versions and attempts") {
    check_member_refused("version", "1", "2", "it is of version 2 of the format, this program");
    check_member_refused("version", "1", "999999999999", "it is of version 999999999 of the");
    check_member_refused("version", "1", "0", "version must be an integer >= 1");
    check_member_refused("version", "1", "-1", "version must be an integer >= 1");
    check_member_refused("version", "1", "1.5", "version must be an integer from 1 to 1, got 1.5");
    check_member_refused("format", "\"fsdptrain-checkpoint\"", "\"other\"", "it must begin with");
    check_member_refused("attempt", "\"0011", "\"001", "attempt: a digest has 32");
    check_member_refused("attempt", "\"0011", "\"G011", "attempt: a digest has 32");
    check_member_refused("created", "\"2026-11-30T21:15:00Z\"", "\"yesterday\"",
                         "created must be like");
    check_refused("\"digest\":\"00000000000000010000000000000002\"", "\"digest\":\"1\"",
                  "files 0: digest: a digest has 32");
  }

  TEST_CASE("JSON: what is there twice, missing, unknown, of another kind, too deep or no JSON") {
    check_refused("\"writer\"", "\"step\":5,\"writer\"", "\"step\" is given twice");
    check_refused("\"files\":[", "\"files\":[],\"files\":[", "\"files\" is given twice");
    check_refused("{\"name\":\"root\"", "{\"name\":\"a\",\"name\":\"root\"",
                  "\"groups\" 0: \"name\" is given twice");
    check_refused("\"data\":{", "\"keys\":{\"kind\":\"replicated\",\"values\":[1]},\"data\":{",
                  "\"keys\" is given twice");
    check_refused("\"position\":", "\"ratio\":1,\"position\":",
                  "\"objects\" \"data\": \"ratio\" is given twice");
    check_refused("\"created\":\"2026-11-30T21:15:00Z\",\n", "", "created is missing");
    check_refused("\"files\"", "\"filez\"", "\"filez\" must be text or a number, if it is of");
    check_refused("\"writer\"", "\"more\":1,\"writer\"", "\"more\" is no member of this version");
    check_refused("\"part\":128", "\"part\":128,\"more\":[]", "\"more\" is no member of this");
    check_refused("\"files\":[", "\"files\":{},\"x\":[",
                  "\"files\" must be an array, got an object");
    check_refused("\"objects\":{", "\"objects\":[],\"x\":{", "\"objects\" must be an object, got");
    check_refused("\"files\":[", "\"files\":1,\"x\":[", "\"x\" must be text or a number");
    check_refused(kHead, "7", "tensors 1 must be an object, got 7");
    check_refused("\"ratio\":0.5", "\"ratio\":" + std::string(70, '[') + std::string(70, ']'),
                  "\"objects\" \"data\": it is nested deeper than 64");
    check_refused("\"ratio\":0.5", "\"ratio\":" + std::string(100000, '['),
                  "nested deeper than 64");
    check_refused("\"ratio\":0.5", "\"ratio\":1e400", "it is not JSON at its byte");
    check_refused("\"ratio\":0.5", "\"ratio\":NaN", "it is not JSON at its byte");
    check_refused("\"ratio\":0.5", "\"ratio\":\"\xff\"", "it is not JSON at its byte");
    check_refused("\"ratio\":0.5", std::string("\"ratio\":\0", 9), "it has a zero byte");
    check_refused("\"ratio\":0.5", "\"ratio\":0.5}", "it is not JSON at its byte");
    CHECK_THROWS_AS(
        parse_manifest("m", resealed(replaced(render_manifest(testing::example_manifest()),
                                              "{\"format\"", "[{\"format\""))),
        DataError);
  }

  TEST_CASE("groups: parts and planes") {
    check_member_refused("part", "128", "-1", "part must be an integer from 0 to");
    check_member_refused("part", "128", "9223372036854775807", "part must be an integer from 0 to");
    check_member_refused("part", "128", "9007199254740993", "part must be 0 to 9007199254740992");
    check_member_refused("part", "128", "64", "does not lie in its group's 2 files");
    check_refused("[\"exp_avg\",\"BF16\"]", "[\"parameters\",\"BF16\"]",
                  "the plane \"parameters\" twice");
    check_refused("[\"parameters\",\"F32\"],", "", "it has no plane parameters");
    check_refused("\"exp_avg\"", "\"a/b\"", "a plane's name has 1 to 4096 bytes without / and @");
    check_refused("\"exp_avg\"", "\"\"", "a plane's name has 1 to 4096 bytes");
    check_refused("\"BF16\"", "\"F8_E4M3\"", "dtype F8_E4M3 is reserved by version 1");
    check_refused("\"BF16\"", "\"BOOL\"", "dtype \"BOOL\" is not one of the format's");
    check_refused("[\"exp_avg\",\"BF16\"]", "[\"exp_avg\"]", "a plane must be [name, dtype]");
    check_refused("[\"exp_avg\",\"BF16\"]", "7", "a plane must be [name, dtype], got 7");
  }

  TEST_CASE("tensors: names, shapes, places, overlaps") {
    const auto head = [](const std::string& shape, const std::string& group,
                         const std::string& offset, const std::string& name = "\"head\"") {
      return "{\"name\":" + name + ",\"shape\":" + shape + ",\"group\":" + group +
             ",\"offset\":" + offset + "}";
    };
    check_head_refused(head("[7,8]", "0", "112", "\"wte.weight\""), "two tensors are named");
    check_head_refused(head("[7,8]", "0", "112", "\"\""), "a tensor's name has 1 to 4096 bytes");
    check_head_refused(head("[7,8]", "0", "112", "\"a@1\""), "1 to 4096 bytes without @");
    check_head_refused(head("[7,8]", "0", "112", "\"" + std::string(5000, 'x') + "\""),
                       "name must be a string of at most 4096 bytes");
    check_head_refused(head("[7,8]", "0", "99"), "begins at element 99 of group 0, inside");
    check_head_refused(head("[7,8]", "0", "0"), "of group 0, inside");
    check_head_refused(head("[7,8]", "0", "201"),
                       "does not lie in its group's 2 files, which have 256");
    check_head_refused(head("[7,8]", "0", "9223372036854775807"), "does not lie in its group's");
    check_head_refused(head("[7,8]", "0", "-1"), "offset must be an integer from 0");
    check_head_refused(head("[7,8]", "2", "112"), "group must be one of 2, got 2");
    check_head_refused(head("[7,8]", "-1", "112"), "group must be an integer from 0");
    check_head_refused(head("[7,-8]", "0", "112"), "shape must be an integer from 0");
    check_head_refused(head("[4294967296,4294967296]", "0", "112"), "overflows 64 bits");
    check_head_refused(head("[0,4294967296,4294967296]", "0", "112"), "overflows 64 bits");
    check_head_refused(head("[1,1,1,1,1,1,1,1,1]", "0", "112"),
                       "shape must be an array of at most 8");
    check_head_refused(head("7", "0", "112"),
                       "shape must be an array of at most 8 integers, got 7");
    check_head_refused(head("[4503599627370497,4]", "0", "112"),
                       "it has at most 18014398509481984 elements");
    check_head_refused("{\"name\":\"head\",\"shape\":[],\"group\":0}", "offset is missing");
  }

  TEST_CASE("boxes: outside, gaps, overlaps, no grid, no order, and other files") {
    const char* second = "{\"file\":1,\"offset\":[0,0],\"size\":[4,2],\"begin\":3,\"end\":8}";
    const auto piece = [](const char* offset, const char* size, const char* range) {
      return std::string("{\"file\":1,\"offset\":") + offset + ",\"size\":" + size + "," + range +
             "}";
    };
    const char* gap = "does not follow on the one before it: a gap, an overlap or no order";
    check_refused(second, piece("[0,0]", "[4,2]", "\"begin\":4,\"end\":8"), gap);
    check_refused(second, piece("[0,0]", "[4,2]", "\"begin\":2,\"end\":8"), gap);
    check_refused(second, piece("[0,0]", "[4,2]", "\"begin\":3,\"end\":7"), gap);
    check_refused(second, piece("[0,0]", "[4,2]", "\"begin\":3,\"end\":9"), "is not inside it");
    check_refused(second, piece("[0,0]", "[4,2]", "\"begin\":3,\"end\":3"), "is not inside it");
    check_refused(second, piece("[0,0]", "[5,2]", "\"begin\":3,\"end\":8"), "is not inside it");
    check_refused(second, piece("[9,0]", "[4,2]", "\"begin\":3,\"end\":8"), "is not inside it");
    check_refused(second, piece("[0]", "[4]", "\"begin\":3,\"end\":4"), "is not inside it");
    check_refused(second, piece("[0,0]", "[4,9223372036854775807]", "\"begin\":3,\"end\":8"),
                  "is not inside it");
    check_refused(second, piece("[0,0]", "[4,0]", "\"begin\":3,\"end\":8"),
                  "size must be an integer");
    check_refused(second, piece("[0,0]", "[4,3]", "\"begin\":3,\"end\":8"),
                  "is no cell of the grid");
    check_refused(second, piece("[0,1]", "[4,1]", "\"begin\":0,\"end\":4"),
                  "is no cell of the grid");
    check_refused(std::string(second) + ",", "", gap);
    check_refused(second, "7", "tensors 2: piece 1 must be an object, got 7");
    check_refused("{\"file\":1,\"offset\":[0,0]", "{\"file\":2,\"offset\":[0,0]",
                  "the file of a piece must be 0 to 1, got 2");
    check_refused(",{\"file\":1,\"offset\":[0,2],\"size\":[4,4],\"begin\":0,\"end\":16}", "",
                  "is no cell of the grid");
    check_refused("\"shape\":[4,6]", "\"shape\":[4,7]", "is no cell of the grid");
    check_refused("\"shape\":[4,6]", "\"shape\":[0,6]", "without elements it has no pieces");
  }

  TEST_CASE("boxes: a hole at the beginning is one") {
    check_refused(
        "{\"file\":0,\"offset\":[0,0],\"size\":[4,2],\"begin\":0,\"end\":3},"
        "{\"file\":1,\"offset\":[0,0],\"size\":[4,2],\"begin\":3,\"end\":8},",
        "", "its 1 pieces are no grid that covers it");
  }

  TEST_CASE("objects: kinds and counts") {
    check_refused("\"replicated\"", "\"other\"",
                  "kind must be replicated or per_rank, got \"other\"");
    check_refused("\"per_rank\"", "\"replicated\"",
                  "object \"keys\": it must have 1 values, got 2");
    check_refused("\"replicated\"", "\"per_rank\"",
                  "object \"data\": it must have 2 values, got 1");
    check_refused("\"keys\":", "\"\":", "an object's name has 1 to 4096 bytes");
  }

  TEST_CASE("limits: more tensors than there may be are refused before they are kept") {
    const std::string record = R"({"name":"a","shape":[],"group":0,"offset":0},)";
    std::string records;
    for (std::size_t i = 0; i <= kMaxTensors; ++i) {
      records += record;
    }
    // Equal names would be found later.
    const std::string text = render_manifest(testing::example_manifest());
    const std::string hostile =
        resealed(replaced(text, "\"tensors\":[", "\"tensors\":[" + records));
    CHECK_THROWS_WITH_AS(parse_manifest("m", hostile),
                         doctest::Contains("m: tensors has more than 1000000 elements"), DataError);
  }

  TEST_CASE("a manifest is refused for its size before it is looked at") {
    // Not touched: its text would fail at the first byte.
    const std::string_view huge(kFile, kMaxManifestBytes + 1);
    CHECK_THROWS_WITH_AS(parse_manifest("m", huge), doctest::Contains("a manifest has at most"),
                         DataError);
  }
}

}  // namespace fsdptrain::checkpoint
