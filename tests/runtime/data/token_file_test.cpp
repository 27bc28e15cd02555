#include "runtime/data/token_file.h"

#include <csignal>
#include <cstring>
#include <sys/resource.h>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/runtime/data/token_fixture.h"

namespace fsdptrain::data {
namespace {

TEST_SUITE_BEGIN("runtime/data/token_file");

// A valid file of the tokens 3, 1, 4 over the vocabulary 5, with token 4 as end of document.
std::string valid_bytes() {
  std::string bytes(kTokenHeaderBytes, '\0');
  const auto put = [&bytes](std::size_t offset, auto value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  };
  std::memcpy(bytes.data(), "FSDPTOK1", 8);
  put(8, std::uint32_t{1});
  put(12, std::uint32_t{2});
  put(16, std::uint64_t{3});
  put(24, std::uint32_t{5});
  put(28, std::uint32_t{4});
  put(32, std::uint64_t{1});
  std::memcpy(bytes.data() + 40, "test", 4);
  bytes += std::string("\3\0\1\0\4\0", 6);
  return bytes;
}

template <class T>
std::string changed(std::size_t offset, T value) {
  std::string bytes = valid_bytes();
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

TEST_CASE("the writer makes exactly the documented bytes") {
  const TemporaryFolder folder;
  make_token_file(folder / "t", {3, 1, 4}, 5, 4);
  CHECK(read_file(folder / "t") == valid_bytes());
}

TEST_CASE("a file reads back as it was written") {
  const TemporaryFolder folder;
  // More than one buffer of the writer, and an odd rest.
  std::vector<std::uint16_t> tokens((std::size_t{1} << 20) + 7);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(i * 7919 % 65536);
  }
  const auto file = make_token_file(folder / "t", tokens, 65536);
  CHECK(file->num_tokens() == tokens.size());
  CHECK(std::equal(tokens.begin(), tokens.end(), file->tokens().begin(), file->tokens().end()));
  CHECK(file->header().vocab_size == 65536);
  CHECK_FALSE(file->header().end_of_document);
  CHECK(file->header().num_documents == 1);
  CHECK(file->header().tokenizer == "test");
  std::vector<std::int64_t> out(3);
  file->read(tokens.size() - 3, out);
  CHECK(out[2] == tokens.back());
  CHECK_THROWS_WITH_AS(file->read(tokens.size() - 2, out),
                       doctest::Contains("3 tokens from 1048581 on"), ShapeError);
}

TEST_CASE("documents are counted by their ends, and one more for a rest") {
  const TemporaryFolder folder;
  CHECK(make_token_file(folder / "a", {0, 4, 1, 4}, 5, 4)->header().num_documents == 2);
  CHECK(make_token_file(folder / "b", {0, 4, 1}, 5, 4)->header().num_documents == 2);
  CHECK(make_token_file(folder / "c", {4, 4}, 5, 4)->header().num_documents == 2);
  CHECK(make_token_file(folder / "d", {}, 5, 4)->header().num_documents == 0);
}

TEST_CASE("nothing lies under the final name before commit, and nothing at all without it") {
  const TemporaryFolder folder;
  {
    TokenFileWriter writer(folder / "t", 5, std::nullopt, "test");
    writer.append(std::vector<std::uint16_t>{1, 2});
    CHECK_FALSE(std::filesystem::exists(folder / "t"));
    CHECK_FALSE(std::filesystem::is_empty(folder.path()));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a failed writer leaves the old file") {
  const TemporaryFolder folder;
  make_token_file(folder / "t", {3, 1, 4}, 5, 4);
  {
    TokenFileWriter writer(folder / "t", 5, std::nullopt, "test");
    CHECK_THROWS_WITH_AS(writer.append(std::vector<std::uint16_t>{1, 5}),
                         doctest::Contains("token 5 is outside the vocabulary of 5, at offset 1"),
                         DataError);
  }
  CHECK(read_file(folder / "t") == valid_bytes());
}

TEST_CASE("a refused write names the path, the bytes, the reason and a cure") {
  const TemporaryFolder folder;
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit { 4096, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  {
    TokenFileWriter writer(folder / "t", 5, std::nullopt, "test");
    writer.append(std::vector<std::uint16_t>(4000));
    CHECK_THROWS_WITH_AS(writer.commit(),
                         doctest::Contains("writing 4928 bytes at offset 4096 failed: File too "
                                           "large; raise the limit of file sizes"),
                         IoError);
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a missing folder is named before any work") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(TokenFileWriter(folder / "no/t", 5, std::nullopt, "test"),
                       doctest::Contains("No such file or directory; create the folder first"),
                       IoError);
}

TEST_CASE("each defect of a file has its own message") {
  struct Defect {
    const char* message;
    std::string bytes;
  };
  const std::vector<Defect> defects{
      {"0 bytes are less than the 1024", ""},
      {"1023 bytes are less than the 1024", valid_bytes().substr(0, 1023)},
      {"not a token file: it must begin with FSDPTOK1, got \"FSDPTOK2\"", changed(7, '2')},
      {"the version must be 1, got 2", changed(8, std::uint32_t{2})},
      {"tokens of 4 bytes are reserved", changed(12, std::uint32_t{4})},
      {"the bytes per token must be 2, got 3", changed(12, std::uint32_t{3})},
      {"counts 4 tokens of 2 bytes, but 6 bytes follow", changed(16, std::uint64_t{4})},
      {"counts 2 tokens of 2 bytes, but 6 bytes follow", changed(16, std::uint64_t{2})},
      {"counts 9223372036854775811 tokens", changed(16, (std::uint64_t{1} << 63) + 3)},
      {"but 5 bytes follow", valid_bytes().substr(0, kTokenHeaderBytes + 5)},
      {"but 7 bytes follow", valid_bytes() + "x"},
      {"the vocabulary size must be 1 to 65536, got 0", changed(24, std::uint32_t{0})},
      {"the vocabulary size must be 1 to 65536, got 65537", changed(24, std::uint32_t{65537})},
      {"below the vocabulary size 5, got 5", changed(28, std::uint32_t{5})},
      {"4 documents do not fit 3 tokens", changed(32, std::uint64_t{4})},
      {"the name of the tokenizer must be", changed(40, '\0')},
      {"the name of the tokenizer must be", changed(43, '\n')},
      {"byte 72 of the header must be 0, got 1", changed(72, '\1')},
      {"byte 1023 of the header must be 0, got 7", changed(1023, '\7')},
  };
  const TemporaryFolder folder;
  for (const Defect& defect : defects) {
    CAPTURE(defect.message);
    write_file(folder / "bad", defect.bytes);
    CHECK_THROWS_WITH_AS(TokenFile(folder / "bad"), doctest::Contains(defect.message), DataError);
  }
  CHECK_THROWS_WITH_AS(TokenFile(folder / "none"), doctest::Contains("none: there is no such file"),
                       DataError);
  CHECK_THROWS_WITH_AS(TokenFile(folder.path()), doctest::Contains("must be a file, got a folder"),
                       DataError);
}

TEST_CASE("a token outside the vocabulary is found when it is read") {
  const TemporaryFolder folder;
  write_file(folder / "t", changed(kTokenHeaderBytes + 2, std::uint16_t{5}));
  const TokenFile file(folder / "t");
  std::vector<std::int64_t> out(1);
  file.read(0, out);
  CHECK(out[0] == 3);
  CHECK_THROWS_WITH_AS(file.read(1, out),
                       doctest::Contains("token 5 at offset 1 is outside the vocabulary of 5"),
                       DataError);
}

TEST_CASE("a file that is cut while it is in use is found when it is read") {
  const TemporaryFolder folder;
  const auto file = make_token_file(folder / "t", std::vector<std::uint16_t>(100'000, 3), 5);
  std::vector<std::int64_t> out(10);
  file->read(99'990, out);
  std::filesystem::resize_file(folder / "t", kTokenHeaderBytes);
  CHECK_THROWS_WITH_AS(file->read(99'990, out), doctest::Contains("was truncated while in use"),
                       DataError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
