#include "runtime/data/token_source.h"

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_fixture.h"
#include "tests/support/unreadable_folder.h"

namespace fsdptrain::data {
namespace {

using testing::TemporaryFolder;
using testing::write_tokens;

TEST_SUITE_BEGIN("runtime/data/token_source");

const Vocabulary kSmall{5, 4, "test"};

std::vector<std::int64_t> all_of(const TokenSource& source) {
  std::vector<std::int64_t> tokens(source.num_tokens());
  source.read(0, tokens);
  return tokens;
}

TEST_CASE("a folder is its .bin files by name, and nothing else") {
  const TemporaryFolder folder;
  write_tokens({folder / "b.bin", kSmall}, {1});
  write_tokens({folder / "a.bin", kSmall}, {2, 3});
  write_tokens({folder / "c.tok", kSmall}, {0});
  std::filesystem::create_directory(folder / "d");
  std::filesystem::create_symlink("gone", folder / "dangling");
  const TokenSource source(folder.path());
  CHECK(all_of(source) == std::vector<std::int64_t>{2, 3, 1});
  CHECK(source.name() == folder.path().native());
  CHECK(source.vocabulary() == kSmall);
  // Paths keep their order, and a folder among them its place.
  CHECK(all_of(TokenSource({folder / "c.tok", folder.path(), folder / "b.bin"})) ==
        std::vector<std::int64_t>{0, 2, 3, 1, 1});
}

TEST_CASE("windows over shards are those of the whole stream") {
  for (const std::uint32_t vocab_size : {100u, 100'000u}) {
    const TemporaryFolder folder;
    std::vector<std::int64_t> tokens;
    std::vector<std::filesystem::path> paths;
    for (std::uint64_t i = 0; i < 40; ++i) {
      std::vector<std::int64_t> shard(philox(i, 0, 1).word[0] % 7);  // some of them empty
      for (std::size_t k = 0; k < shard.size(); ++k) {
        shard[k] = philox(i, 1 + k, 1).word[1] % vocab_size;
      }
      paths.push_back(folder / fmt::format("{:03}.bin", i));
      write_tokens({paths.back(), {vocab_size, std::nullopt, "test"}}, shard);
      tokens.insert(tokens.end(), shard.begin(), shard.end());
    }
    const TokenSource source(paths);
    REQUIRE(source.num_tokens() == tokens.size());
    for (std::size_t begin = 0; begin <= tokens.size(); ++begin) {
      for (const std::size_t length :
           {std::size_t{0}, std::size_t{1}, std::size_t{13}, tokens.size() - begin}) {
        const std::size_t count = std::min(length, tokens.size() - begin);
        std::vector<std::int64_t> window(count);
        source.read(begin, window);
        REQUIRE(std::equal(window.begin(), window.end(),
                           tokens.begin() + static_cast<std::ptrdiff_t>(begin)));
      }
    }
    std::vector<std::int64_t> two(2);
    CHECK_THROWS_WITH_AS(source.read(tokens.size() - 1, two),
                         doctest::Contains("are not within its"), ShapeError);
    CHECK_THROWS_AS(source.read(~std::uint64_t{0}, two), ShapeError);
  }
}

TEST_CASE("a document that goes on in the next file counts once") {
  const TemporaryFolder folder;
  for (const std::uint64_t shard_tokens : {1u, 2u, 3u, 5u, 100u}) {
    CAPTURE(shard_tokens);
    const auto name = fmt::format("s{}/set", shard_tokens);
    std::filesystem::create_directory((folder / name).parent_path());
    write_tokens({folder / name, kSmall, shard_tokens}, {0, 4, 4, 1, 2, 3, 4, 1});
    CHECK(TokenSource((folder / name).parent_path()).count_documents() == 4);
  }
  write_tokens({folder / "empty", kSmall}, {});
  CHECK(TokenSource(folder / "empty").count_documents() == 0);
  // No end of document: all is one.
  write_tokens({folder / "plain", {5, std::nullopt, "test"}, 3}, {1, 2, 3, 4, 1, 2, 3});
  CHECK(TokenSource(existing_shards(folder / "plain")).count_documents() == 1);
}

TEST_CASE("files of different vocabularies are refused with both names") {
  const TemporaryFolder folder;
  const std::vector<Vocabulary> others{{6, 4, "test"},
                                       {5, 3, "test"},
                                       {5, 4, "tess"},
                                       {5, std::nullopt, "test"},
                                       {100'000, 4, "test"}};
  write_tokens({folder / "a.bin", kSmall}, {1});
  for (const Vocabulary& other : others) {
    write_tokens({folder / "b.bin", other}, {1});
    const std::string both = fmt::format(
        "{} and {}: files that are read together must have one "
        "vocabulary, got tokenizer test, 5 tokens, end of "
        "document 4 and ",
        (folder / "a.bin").native(), (folder / "b.bin").native());
    CHECK_THROWS_WITH_AS(TokenSource(folder.path()), doctest::Contains(both.c_str()), DataError);
  }
}

TEST_CASE("a shard set with a gap is not whole") {
  const TemporaryFolder folder;
  write_tokens({folder / "set", kSmall, 1}, {0, 1, 2});
  CHECK(all_of(TokenSource(folder.path())) == std::vector<std::int64_t>{0, 1, 2});
  std::filesystem::rename(folder / "set-00001.bin", folder / "kept");
  CHECK_THROWS_WITH_AS(TokenSource(folder.path()),
                       doctest::Contains("set-00002.bin: the shard before it is missing, expected "
                                         "a name with -00001"),
                       DataError);
  std::filesystem::rename(folder / "kept", folder / "set-00001.bin");
  std::filesystem::remove(folder / "set-00000.bin");
  CHECK_THROWS_WITH_AS(TokenSource(folder.path()),
                       doctest::Contains("set-00001.bin: the shard before it is missing"),
                       DataError);
  std::filesystem::rename(folder / "set-00002.bin", folder / "kept");
  std::filesystem::remove(folder / "set-00001.bin");
  write_tokens({folder / "set", kSmall, 1}, {0, 1, 2});
  std::filesystem::remove(folder / "set-00002.bin");
  CHECK_THROWS_WITH_AS(TokenSource(folder.path()),
                       doctest::Contains("set-00001.bin: the shard behind it is missing"),
                       DataError);
  std::filesystem::rename(folder / "kept", folder / "set-00002.bin");
  CHECK(all_of(TokenSource(folder.path())) == std::vector<std::int64_t>{0, 1, 2});
  // Who names files has chosen them.
  CHECK(all_of(TokenSource({folder / "set-00002.bin"})) == std::vector<std::int64_t>{2});
}

TEST_CASE("two sets of one name are not one") {
  const TemporaryFolder folder;
  write_tokens({folder / "set", kSmall, 1}, {0, 1});
  write_tokens({folder / "other", kSmall, 1}, {2, 3});
  CHECK(all_of(TokenSource(folder.path())) == std::vector<std::int64_t>{2, 3, 0, 1});
  std::filesystem::rename(folder / "other-00000.bin", folder / "set-00002.bin");
  std::filesystem::rename(folder / "other-00001.bin", folder / "set-00003.bin");
  const std::string message =
      fmt::format("set-00002.bin: lies behind {}, which is the last shard of its set",
                  (folder / "set-00001.bin").native());
  CHECK_THROWS_WITH_AS(TokenSource(folder.path()), doctest::Contains(message.c_str()), DataError);
}

TEST_CASE("shards that do not say their place, as earlier versions wrote them, are read") {
  const TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) {
    write_tokens({folder / fmt::format("set-0000{}.bin", i), kSmall}, {i});
  }
  CHECK(all_of(TokenSource(folder.path())) == std::vector<std::int64_t>{0, 1, 2});
}

TEST_CASE("what is named like a token file and is none is told") {
  const TemporaryFolder folder;
  write_tokens({folder / "a.bin", kSmall}, {1});
  const auto check_refused = [&](const char* message) {
    CHECK_THROWS_WITH(TokenSource(folder.path()), doctest::Contains(message));
    std::filesystem::remove(folder / "b.bin");
  };
  std::filesystem::create_directory(folder / "b.bin");
  check_refused("b.bin: must be a file, got a folder");
  std::filesystem::create_symlink("gone", folder / "b.bin");
  check_refused("b.bin: there is no such file: it is a link to nothing");
  std::filesystem::create_symlink("b.bin", folder / "b.bin");
  check_refused("b.bin: opening for reading failed: Too many levels of symbolic links");
  {
    const testing::UnreadableFolder unreadable(folder.path());
    check_refused(": listing the folder failed: Permission denied; give this user the right, or");
  }
  std::filesystem::create_symlink("a.bin", folder / "b.bin");
  CHECK(all_of(TokenSource(folder.path())) == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("the name of a set may have dots, and another set's may be its beginning") {
  const TemporaryFolder folder;
  write_tokens({folder / "c4.en.bin", kSmall, 1}, {0, 1, 2});
  write_tokens({folder / "c4.bin", kSmall, 2}, {3, 4, 1});
  CHECK(all_of(TokenSource(folder.path())) == std::vector<std::int64_t>{3, 4, 1, 0, 1, 2});
  std::filesystem::remove(folder / "c4.en-00000.bin");
  CHECK_THROWS_WITH_AS(TokenSource(folder.path()),
                       doctest::Contains("c4.en-00001.bin: the shard before it is missing"),
                       DataError);
}

// Mappings of the file that are read without reading ahead (MADV_RANDOM).
int num_random_mappings(const std::filesystem::path& path) {
  std::ifstream maps("/proc/self/smaps");
  int count = 0;
  bool is_of_file = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.front() < 'A' || line.front() > 'Z') {  // addresses and path; fields follow
      is_of_file = line.ends_with(path.native());
    } else if (line.starts_with("VmFlags:") && line.find(" rr") != std::string::npos) {
      count += is_of_file ? 1 : 0;
    }
  }
  return count;
}

TEST_CASE("only who reads windows in no order does without reading ahead") {
  const TemporaryFolder folder;
  write_tokens({folder / "t.bin", kSmall}, {0, 1, 2});
  const TokenSource source(folder / "t.bin");
  CHECK(num_random_mappings(folder / "t.bin") == 0);
  source.advise_random();
  CHECK(num_random_mappings(folder / "t.bin") == 1);
}

TEST_CASE("what is no source is named") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(TokenSource(folder.path()), doctest::Contains("holds no .bin file"),
                       DataError);
  CHECK_THROWS_WITH_AS(TokenSource(folder / "none"), doctest::Contains("there is no such file"),
                       DataError);
  CHECK_THROWS_WITH_AS(TokenSource(std::vector<std::filesystem::path>{}),
                       doctest::Contains("needs a file or a folder"), ConfigError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
