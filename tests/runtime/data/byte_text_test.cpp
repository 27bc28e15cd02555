#include "runtime/data/byte_text.h"

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/runtime/data/token_fixture.h"

namespace fsdptrain::data {
namespace {

TEST_SUITE_BEGIN("runtime/data/byte_text");

std::vector<std::int64_t> tokens_of(const std::filesystem::path& text,
                                    const std::filesystem::path& output) {
  TokenWriter writer({output, byte_vocabulary()});
  append_byte_tokens(list_documents(text), writer);
  writer.commit();
  const TokenFile file(output);
  std::vector<std::int64_t> tokens(file.num_tokens());
  file.read(0, tokens);
  return tokens;
}

TEST_CASE("a file is its bytes and an end of document") {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", std::string("a\0\xff", 3));
  CHECK(tokens_of(folder / "a.txt", folder / "t") == std::vector<std::int64_t>{97, 0, 255, 256});
}

TEST_CASE("a folder is all files below it in the order of their paths") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "text/b");
  write_file(folder / "text/c", "3");
  write_file(folder / "text/b/z", "2");
  write_file(folder / "text/b.txt", "1");
  write_file(folder / "text/a", "");
  // Neither a link in a circle nor one to a folder leads to a file.
  std::filesystem::create_symlink("circle", folder / "text/circle");
  std::filesystem::create_symlink("..", folder / "text/up");
  CHECK(tokens_of(folder / "text", folder / "t") ==
        std::vector<std::int64_t>{256, '1', 256, '2', 256, '3', 256});
  CHECK(total_bytes(list_documents(folder / "text")) == 3);
}

TEST_CASE("a document longer than one read is whole, and progress is told") {
  const TemporaryFolder folder;
  const std::string text((std::size_t{1} << 21) + 5, 'x');
  write_file(folder / "a", text);
  TokenWriter writer({folder / "t", byte_vocabulary()});
  std::vector<std::uint64_t> told;
  append_byte_tokens(list_documents(folder / "a"), writer,
                     [&told](std::uint64_t done) { told.push_back(done); });
  CHECK(writer.num_tokens() == text.size() + 1);
  CHECK(told == std::vector<std::uint64_t>{1 << 20, 1 << 21, text.size()});
}

TEST_CASE("missing, empty and unreadable texts are told apart") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "empty");
  write_file(folder / "nothing", "");
  CHECK_THROWS_WITH_AS(tokens_of(folder / "none", folder / "t"),
                       doctest::Contains("none: no such file or folder"), DataError);
  CHECK_THROWS_WITH_AS(tokens_of(folder / "empty", folder / "t"),
                       doctest::Contains("holds no regular file"), DataError);
  CHECK_THROWS_WITH_AS(tokens_of(folder / "nothing", folder / "t"),
                       doctest::Contains("nothing: the text is empty"), DataError);
  std::filesystem::create_symlink("circle", folder / "circle");
  CHECK_THROWS_WITH_AS(tokens_of(folder / "circle", folder / "t"),
                       doctest::Contains("circle: cannot be a text: Too many levels"), DataError);
  CHECK_THROWS_WITH_AS(tokens_of("/dev/null", folder / "t"),
                       doctest::Contains("must be a regular file or a folder"), DataError);
  // Opens, but its first page cannot be read.
  CHECK_THROWS_WITH_AS(tokens_of("/proc/self/mem", folder / "t"),
                       doctest::Contains("at offset 0 failed: Input/output error"), IoError);
  CHECK_FALSE(std::filesystem::exists(folder / "t"));
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
