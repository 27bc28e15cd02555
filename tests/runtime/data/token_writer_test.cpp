#include "runtime/data/token_writer.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"
#include "tests/support/unreadable_folder.h"

namespace fsdptrain::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::UnreadableFolder;
using testing::write_file;
using testing::write_tokens;

TEST_SUITE_BEGIN("runtime/data/token_writer");

const Vocabulary kSmall{5, 4, "test"};

// A file of a vocabulary of 5 in which 4 ends a document, by the table of docs/formats.md.
std::string documented_bytes(const std::vector<std::uint16_t>& tokens, std::uint64_t num_documents,
                             std::uint32_t shard_place = 0) {
  std::string bytes(kTokenHeaderBytes + 2 * tokens.size(), '\0');
  const auto put = [&bytes](std::size_t offset, auto value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  };
  std::memcpy(bytes.data(), "FSDPTOK1", 8);
  put(8, std::uint32_t{1});
  put(12, std::uint32_t{2});
  put(16, std::uint64_t{tokens.size()});
  put(24, std::uint32_t{5});
  put(28, std::uint32_t{4});
  put(32, num_documents);
  std::memcpy(bytes.data() + 40, "test", 4);
  put(72, shard_place);
  std::memcpy(bytes.data() + kTokenHeaderBytes, tokens.data(), 2 * tokens.size());
  return bytes;
}

std::vector<std::string> names_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

std::uint64_t documents_of(const TemporaryFolder& folder, const std::vector<std::int64_t>& tokens) {
  write_tokens({folder / "t", kSmall}, tokens);
  return TokenFile(folder / "t").header().num_documents;
}

TEST_CASE("it makes exactly the documented bytes") {
  const TemporaryFolder folder;
  write_tokens({folder / "t", kSmall}, {3, 1, 4});
  CHECK(read_file(folder / "t") == documented_bytes({3, 1, 4}, 1));
}

TEST_CASE("a vocabulary beyond 65,536 takes four bytes for a token") {
  const TemporaryFolder folder;
  write_tokens({folder / "t", {65'537, 65'536, "test"}}, {65'536, 7});
  const std::string bytes = read_file(folder / "t");
  CHECK(bytes.size() == kTokenHeaderBytes + 8);
  CHECK(bytes.substr(12, 4) == std::string("\4\0\0\0", 4));
  CHECK(bytes.substr(kTokenHeaderBytes) == std::string("\0\0\1\0\7\0\0\0", 8));
  TokenWriter writer({folder / "u", {65'537, 65'536, "test"}});
  CHECK_THROWS_WITH_AS(writer.append(std::span<const std::uint16_t>()),
                       doctest::Contains("a vocabulary of 65537 have 4 bytes, got 2"), DTypeError);
}

TEST_CASE("documents are counted by their ends, and one more for a rest") {
  const TemporaryFolder folder;
  CHECK(documents_of(folder, {0, 4, 1, 4}) == 2);
  CHECK(documents_of(folder, {0, 4, 1}) == 2);
  CHECK(documents_of(folder, {4, 4}) == 2);
  CHECK(documents_of(folder, {}) == 0);
}

TEST_CASE("shards hold the stream in order, all of one size but the last") {
  for (const std::uint64_t shard_tokens : {1u, 3u, 4u, 6u, 7u, 100u}) {
    CAPTURE(shard_tokens);
    const TemporaryFolder folder;
    const std::vector<std::int64_t> tokens{3, 1, 4, 1, 2, 4};
    write_tokens({folder / "set.tok", kSmall, shard_tokens}, tokens);
    const std::size_t num_shards = (tokens.size() + shard_tokens - 1) / shard_tokens;
    CHECK(names_in(folder).size() == num_shards);
    std::vector<std::int64_t> read;
    for (std::size_t i = 0; i < num_shards; ++i) {
      const TokenFile file(folder / fmt::format("set-0000{}.bin", i));
      CHECK(file.num_tokens() == std::min(shard_tokens, tokens.size() - i * shard_tokens));
      std::vector<std::int64_t> part(file.num_tokens());
      file.read(0, part);
      read.insert(read.end(), part.begin(), part.end());
      CHECK(file.header().shard_place ==
            (i + 1 == num_shards ? ShardPlace::Last : ShardPlace::Inner));
    }
    CHECK(read == tokens);
  }
}

TEST_CASE("a document in two shards is one of each, and one of the set") {
  const TemporaryFolder folder;
  TokenWriter writer({folder / "set", kSmall, 2});
  writer.append(std::span<const std::uint16_t>(std::vector<std::uint16_t>{3, 1, 4, 1, 2}));
  writer.commit();
  CHECK(writer.num_documents() == 2);
  CHECK(read_file(folder / "set-00000.bin") == documented_bytes({3, 1}, 1, 1));
  CHECK(read_file(folder / "set-00001.bin") == documented_bytes({4, 1}, 2, 1));
  CHECK(read_file(folder / "set-00002.bin") == documented_bytes({2}, 1, 2));
}

TEST_CASE("parts that threads write in any order are the same files") {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> tokens(10'007);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(i * i % 5);
  }
  write_tokens({folder / "a", kSmall, 1000}, {tokens.begin(), tokens.end()});
  TokenWriter writer({folder / "b", kSmall, 1000});
  std::vector<std::uint64_t> places;
  constexpr std::size_t kPart = 333;
  for (std::size_t i = 0; i < tokens.size(); i += kPart) {
    places.push_back(writer.reserve(std::min(kPart, tokens.size() - i)));
  }
  const auto write_every = [&](std::size_t first, std::size_t stride) {
    for (std::size_t i = first; i < places.size(); i += stride) {
      const std::size_t part = places.size() - 1 - i;  // the last first
      const auto begin = static_cast<std::size_t>(places[part]);
      writer.write(places[part], std::span<const std::uint16_t>(tokens).subspan(
                                     begin, std::min(kPart, tokens.size() - begin)));
    }
  };
  std::thread other([&] { write_every(1, 2); });
  write_every(0, 2);
  other.join();
  writer.commit();
  for (int i = 0; i < 11; ++i) {
    CHECK(read_file(folder / fmt::format("a-{:05}.bin", i)) ==
          read_file(folder / fmt::format("b-{:05}.bin", i)));
  }
}

TEST_CASE("nothing lies under a final name before commit, and nothing at all without it") {
  for (const std::uint64_t shard_tokens : {0u, 1u}) {
    const TemporaryFolder folder;
    {
      TokenWriter writer({folder / "t", kSmall, shard_tokens});
      writer.append(std::span<const std::uint16_t>(std::vector<std::uint16_t>{1, 2}));
      for (const std::string& name : names_in(folder)) {
        CHECK(name.find(".tmp-") != std::string::npos);
      }
      CHECK(names_in(folder).size() == (shard_tokens == 0 ? 1 : 2));
    }
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("a failed writer leaves the old file") {
  const TemporaryFolder folder;
  write_tokens({folder / "t", kSmall}, {3, 1, 4});
  {
    TokenWriter writer({folder / "t", kSmall});
    CHECK_THROWS_WITH_AS(
        writer.append(std::span<const std::uint16_t>(std::vector<std::uint16_t>{1, 5})),
        doctest::Contains("token 5 is outside the vocabulary of 5, at offset 1"), DataError);
  }
  CHECK(read_file(folder / "t") == documented_bytes({3, 1, 4}, 1));
}

TEST_CASE("what is no token file is not replaced") {
  const TemporaryFolder folder;
  for (const char* other : {"", "FSDPTOK", "precious notes"}) {
    CAPTURE(other);
    write_file(folder / "t", other);
    CHECK_THROWS_WITH_AS(TokenWriter({folder / "t", kSmall}),
                         doctest::Contains("t: is there already and no token file, so it is not "
                                           "replaced: move it away, or choose another name"),
                         ConfigError);
    CHECK(read_file(folder / "t") == other);
    CHECK(names_in(folder) == std::vector<std::string>{"t"});
  }
  // One of ours, damaged as it may be.
  write_file(folder / "t", "FSDPTOK1, cut short");
  write_tokens({folder / "t", kSmall}, {3, 1, 4});
  CHECK(read_file(folder / "t") == documented_bytes({3, 1, 4}, 1));
}

TEST_CASE("a set whose names cannot all be given leaves none of its files") {
  const TemporaryFolder folder;
  {
    TokenWriter writer({folder / "set", kSmall, 1});
    writer.append(std::span<const std::uint16_t>(std::vector<std::uint16_t>{1, 2, 3}));
    std::filesystem::create_directory(folder / "set-00000.bin");
    CHECK_THROWS_WITH_AS(writer.commit(),
                         doctest::Contains("set-00000.bin: giving the finished file its name "
                                           "failed: Is a directory"),
                         IoError);
  }
  CHECK(names_in(folder) == std::vector<std::string>{"set-00000.bin"});
}

TEST_CASE("a failure behind the name, before the folder is durable, leaves no file of the set") {
  for (const std::uint64_t shard_tokens : {0u, 1u, 100u}) {
    CAPTURE(shard_tokens);
    const TemporaryFolder folder;
    {
      TokenWriter writer({folder / "set", kSmall, shard_tokens});
      writer.append(std::span<const std::uint16_t>(std::vector<std::uint16_t>{1, 2, 3}));
      writer.complete();
      const UnreadableFolder unreadable(folder.path());
      CHECK_THROWS_WITH_AS(writer.commit(), doctest::Contains("opening the folder failed"),
                           IoError);
    }
    CHECK(names_in(folder).empty());
  }
}

TEST_CASE("a set may have more files than a process may open, to write and to read it") {
  const TemporaryFolder folder;
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const struct rlimit limit { 64, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::vector<std::int64_t> tokens(299);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int64_t>(i * i % 5);
  }
  std::vector<std::int64_t> read(tokens.size());
  CHECK_NOTHROW(write_tokens({folder / "set", kSmall, 2}, tokens));
  CHECK_NOTHROW(TokenSource(folder.path()).read(0, read));
  {
    // One shard at a time, so that each is the last when it is full.
    const TemporaryFolder other;
    TokenWriter writer({other / "set", kSmall, 2});
    for (std::size_t begin = 0; begin < tokens.size(); begin += 2) {
      const auto end = std::min(begin + 2, tokens.size());
      CHECK_NOTHROW(writer.append(std::span<const std::uint16_t>(std::vector<std::uint16_t>(
          tokens.begin() + std::ptrdiff_t(begin), tokens.begin() + std::ptrdiff_t(end)))));
    }
    CHECK_NOTHROW(writer.commit());
    for (const std::string& name : names_in(folder)) {
      CHECK(read_file(other / name) == read_file(folder / name));
    }
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(read == tokens);
  CHECK(names_in(folder).size() == 150);
}

TEST_CASE("more shards than a reader could map are refused with a cure") {
  const TemporaryFolder folder;
  TokenWriter writer({folder / "set", kSmall, 3});
  CHECK(writer.reserve(30'000) == 0);
  CHECK_THROWS_WITH_AS(
      writer.reserve(1),
      doctest::Contains("more than 10000 shards of 3 tokens: choose larger ones (--shard-tokens)"),
      ConfigError);
  CHECK_THROWS_WITH_AS(writer.complete(),
                       doctest::Contains("reserved for 30000 tokens, but 0 were written"), Error);
}

TEST_CASE("shards of an earlier set are refused before any work") {
  const TemporaryFolder folder;
  write_tokens({folder / "set", kSmall, 2}, {3, 1, 4});
  CHECK_THROWS_WITH_AS(TokenWriter({folder / "set.bin", kSmall, 3}),
                       doctest::Contains("set-00000.bin: a shard of an earlier set is there, 2 in"),
                       ConfigError);
  // Names of another form are no shards.
  write_file(folder / "other-1.bin", "");
  write_file(folder / "other-0000x.bin", "");
  write_tokens({folder / "other", kSmall, 2}, {3, 1, 4});
  CHECK(existing_shards(folder / "other").size() == 2);
}

TEST_CASE("a refused write names the path, the bytes, the reason and a cure") {
  for (const std::uint64_t shard_tokens : {0u, 3000u}) {
    const TemporaryFolder folder;
    struct rlimit before {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 4096, before.rlim_max };
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    {
      TokenWriter writer({folder / "t", kSmall, shard_tokens});
      CHECK_THROWS_WITH_AS(
          writer.append(std::span<const std::uint16_t>(std::vector<std::uint16_t>(4000))),
          doctest::Contains("bytes at offset 4096 failed: File too large; raise the limit of file "
                            "sizes"),
          IoError);
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, handler);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("a missing folder is named before any work") {
  const TemporaryFolder folder;
  for (const std::uint64_t shard_tokens : {0u, 3u}) {
    CHECK_THROWS_WITH_AS(TokenWriter({folder / "no/t", kSmall, shard_tokens}),
                         doctest::Contains("No such file or directory; create the folder first"),
                         PathError);
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
