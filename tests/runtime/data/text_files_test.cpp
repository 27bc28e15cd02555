#include "runtime/data/text_files.h"

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::data {
namespace {

using testing::TemporaryFolder;
using testing::write_file;

TEST_SUITE_BEGIN("runtime/data/text_files");

TEST_CASE("a folder is all files below it in the order of their paths, each by its ending") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "text/b");
  write_file(folder / "text/c.jsonl", "3");
  write_file(folder / "text/b/z.json", "22");
  write_file(folder / "text/b.txt", "1");
  write_file(folder / "text/a", "");
  // Neither a link in a circle nor one to a folder leads to a file.
  std::filesystem::create_symlink("circle", folder / "text/circle");
  std::filesystem::create_symlink("..", folder / "text/up");
  const auto files = list_texts({folder / "text", folder / "text/a"});
  REQUIRE(files.size() == 5);
  const std::vector<const char*> names{"a", "b.txt", "z.json", "c.jsonl", "a"};
  const std::vector<std::uint64_t> sizes{0, 1, 2, 1, 0};
  for (std::size_t i = 0; i < files.size(); ++i) {
    CHECK(files[i].path.filename() == names[i]);
    CHECK(files[i].nbytes == sizes[i]);
    CHECK(files[i].format == (i == 3 ? TextFormat::Jsonl : TextFormat::Text));
  }
  CHECK(list_texts({folder / "text/a"}, TextFormat::Jsonl)[0].format == TextFormat::Jsonl);
  CHECK(list_texts({folder / "text/c.jsonl"}, TextFormat::Text)[0].format == TextFormat::Text);
}

TEST_CASE("missing, empty and impossible texts are told apart") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "empty");
  CHECK_THROWS_WITH_AS(list_texts({folder / "none"}),
                       doctest::Contains("none: no such file or folder"), DataError);
  CHECK_THROWS_WITH_AS(list_texts({folder / "empty"}), doctest::Contains("holds no regular file"),
                       DataError);
  std::filesystem::create_symlink("circle", folder / "circle");
  CHECK_THROWS_WITH_AS(list_texts({folder / "circle"}),
                       doctest::Contains("circle: cannot be a text: Too many levels"), DataError);
  CHECK_THROWS_WITH_AS(list_texts({"/dev/null"}),
                       doctest::Contains("must be a regular file or a folder"), DataError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
