#include "runtime/data/token_file.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"

namespace fsdptrain::data {
namespace {

using testing::make_token_file;
using testing::TemporaryFolder;
using testing::write_file;
using testing::write_tokens;

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

TEST_CASE("a file of either width reads back as it was written") {
  for (const std::uint32_t vocab_size : {65'536u, 65'537u, 2'147'483'647u}) {
    CAPTURE(vocab_size);
    const TemporaryFolder folder;
    std::vector<std::int64_t> tokens((std::size_t{1} << 17) + 7);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int64_t>(i * 2'147'480'009 % vocab_size);
    }
    tokens[1] = static_cast<std::int64_t>(vocab_size) - 1;
    write_tokens({folder / "t", {vocab_size, std::nullopt, "test"}}, tokens);
    const TokenFile file(folder / "t");
    CHECK(file.num_tokens() == tokens.size());
    CHECK(file.header().bytes_per_token == (vocab_size == 65'536 ? 2 : 4));
    CHECK(file.header().vocabulary == Vocabulary{vocab_size, std::nullopt, "test"});
    CHECK(file.header().num_documents == 1);
    std::vector<std::int64_t> read(tokens.size());
    file.read(0, read);
    CHECK(read == tokens);
    std::vector<std::int64_t> out(3);
    file.read(tokens.size() - 3, out);
    CHECK(out[2] == tokens.back());
    CHECK_THROWS_WITH_AS(file.read(tokens.size() - 2, out),
                         doctest::Contains("3 tokens from 131077 on"), ShapeError);
    CHECK_THROWS_AS(file.read(~std::uint64_t{0} - 1, out), ShapeError);
  }
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
      {"counts 3 tokens of 4 bytes, but 6 bytes follow", changed(12, std::uint32_t{4})},
      {"the bytes per token must be 2 or 4, got 3", changed(12, std::uint32_t{3})},
      {"the bytes per token must be 2 or 4, got 0", changed(12, std::uint32_t{0})},
      {"counts 4 tokens of 2 bytes, but 6 bytes follow", changed(16, std::uint64_t{4})},
      {"counts 2 tokens of 2 bytes, but 6 bytes follow", changed(16, std::uint64_t{2})},
      {"counts 9223372036854775811 tokens", changed(16, (std::uint64_t{1} << 63) + 3)},
      // Times 2 bytes it is 6 again, in 64 bits.
      {"counts 18446744073709551615 tokens", changed(16, ~std::uint64_t{0})},
      {"but 5 bytes follow", valid_bytes().substr(0, kTokenHeaderBytes + 5)},
      {"but 7 bytes follow", valid_bytes() + "x"},
      {"the vocabulary size must be 1 to 2147483647, got 0", changed(24, std::uint32_t{0})},
      {"the vocabulary size must be 1 to 65536 at 2 bytes per token, got 65537",
       changed(24, std::uint32_t{65537})},
      {"the vocabulary size must be 1 to 2147483647, got 2147483648",
       changed(24, std::uint32_t{1} << 31)},
      {"below the vocabulary size 5, got 5", changed(28, std::uint32_t{5})},
      {"4 documents do not fit 3 tokens", changed(32, std::uint64_t{4})},
      {"3 tokens must be of at least one document, got 0", changed(32, std::uint64_t{0})},
      {"the name of the tokenizer must be", changed(40, '\0')},
      {"the name of the tokenizer must be", changed(43, '\n')},
      {"the place in a set of shards must be 0, 1 or 2, got 3", changed(72, std::uint32_t{3})},
      {"byte 76 of the header must be 0, got 1", changed(76, '\1')},
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

TEST_CASE("random headers are read or refused, and never more than that") {
  const TemporaryFolder folder;
  int num_read = 0;
  write_file(folder / "t", valid_bytes());
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    std::string bytes = valid_bytes();
    // One to eight bytes of a valid header change, most of them where something is written.
    const Philox random = philox(seed, 0, 1);
    for (std::uint32_t i = 0; i <= random.word[0] % 8; ++i) {
      const Philox change = philox(seed, 1 + i, 1);
      const std::size_t place = change.word[0] % (change.word[1] % 4 == 0 ? kTokenHeaderBytes : 72);
      bytes[place] = static_cast<char>(change.word[2] % 3 == 0 ? 0xff : change.word[3]);
    }
    // In place: thousands of new files would take long.
    std::fstream(folder / "t", std::ios::binary | std::ios::in | std::ios::out) << bytes;
    try {
      const TokenFile file(folder / "t");
      REQUIRE(file.num_tokens() == 3);
      std::vector<std::int64_t> out(3);
      file.read(0, out);
      ++num_read;
    } catch (const DataError& error) {
      CHECK(std::string(error.what()).starts_with((folder / "t").native()));
    }
  }
  // Changes of the vocabulary and of the name can be valid.
  CHECK(num_read > 0);
  CHECK(num_read < 1000);
}

TEST_CASE("documents are counted again, with a rest behind the last end as one more") {
  const TemporaryFolder folder;
  const auto check_count = [&](const std::vector<std::int64_t>& tokens,
                               std::optional<std::uint32_t> end) {
    write_tokens({folder / "t", {5, end, "test"}}, tokens);
    const TokenFile file(folder / "t");
    std::string bytes = testing::read_file(folder / "t");
    const auto stored = std::as_bytes(std::span(bytes)).subspan(kTokenHeaderBytes);
    const std::uint64_t num_ends = file.check_tokens(0, stored);
    CHECK(num_ends ==
          static_cast<std::uint64_t>(std::ranges::count(tokens, std::int64_t{4})) * (end ? 1 : 0));
    CHECK_NOTHROW(file.check_num_documents(num_ends));
    if (file.header().num_documents + 1 <= tokens.size()) {
      bytes[32] = static_cast<char>(bytes[32] + 1);
      write_file(folder / "wrong", bytes);
      CHECK_THROWS_WITH_AS(
          TokenFile(folder / "wrong").check_num_documents(num_ends),
          doctest::Contains(fmt::format("wrong: the header counts {} documents, but its tokens "
                                        "are {}: the file is damaged",
                                        file.header().num_documents + 1,
                                        file.header().num_documents)
                                .c_str()),
          DataError);
    }
  };
  check_count({}, 4);
  check_count({1, 2, 4, 4, 3, 4}, 4);
  check_count({1, 2, 4, 4, 3}, 4);
  check_count({1, 4, 2}, std::nullopt);
  check_count(std::vector<std::int64_t>(9000, 4), 4);
}

TEST_CASE("a token outside the vocabulary is found when it is read, in either width") {
  const TemporaryFolder folder;
  write_file(folder / "t", changed(kTokenHeaderBytes + 2, std::uint16_t{5}));
  const TokenFile file(folder / "t");
  std::vector<std::int64_t> out(1);
  file.read(0, out);
  CHECK(out[0] == 3);
  CHECK_THROWS_WITH_AS(file.read(1, out),
                       doctest::Contains("t: token 5 at offset 1 is outside the vocabulary of 5"),
                       DataError);
  const std::string tokens("\1\0\0\0\xff\xff\xff\xff", 8);
  std::string bytes = changed(12, std::uint32_t{4}).substr(0, kTokenHeaderBytes) + tokens;
  bytes[16] = 2;
  write_file(folder / "wide", bytes);
  const TokenFile wide(folder / "wide");
  wide.read(0, out);
  CHECK(out[0] == 1);
  CHECK_THROWS_WITH_AS(wide.read(1, out),
                       doctest::Contains("token 4294967295 at offset 1 is outside"), DataError);
  CHECK_THROWS_WITH_AS(wide.check_tokens(0, std::as_bytes(std::span(tokens))),
                       doctest::Contains("token 4294967295 at offset 1 is outside"), DataError);
}

TEST_CASE("a file that is cut while it is in use is found when it is read") {
  const TemporaryFolder folder;
  make_token_file(folder / "t", std::vector<std::uint16_t>(100'000, 3), 5);
  const TokenFile file(folder / "t");
  std::vector<std::int64_t> out(10);
  file.read(99'990, out);
  std::filesystem::resize_file(folder / "t", kTokenHeaderBytes);
  CHECK_THROWS_WITH_AS(file.read(99'990, out), doctest::Contains("was truncated while in use"),
                       DataError);
}

TEST_CASE("windows of training bring in no pages around what is read") {
  const TemporaryFolder folder;
  make_token_file(folder / "t", std::vector<std::uint16_t>(100'000, 3), 5);
  const TokenFile file(folder / "t");
  file.advise_random();
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool is_found = false;
  while (std::getline(maps, line) && !is_found) {
    is_found = line.ends_with((folder / "t").native());
  }
  REQUIRE(is_found);
  while (std::getline(maps, line) && !line.starts_with("VmFlags:")) {
  }
  // "Random read advise provided", Documentation/filesystems/proc.rst of Linux.
  CHECK(line.find(" rr") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
