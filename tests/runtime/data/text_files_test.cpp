#include "runtime/data/text_files.h"

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/unreadable_folder.h"

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
  std::filesystem::create_symlink("b.txt", folder / "text/link");
  // It would lead in a circle.
  std::filesystem::create_symlink("..", folder / "text/up");
  const auto files = list_texts({folder / "text", folder / "text/a"});
  REQUIRE(files.size() == 6);
  const std::vector<const char*> names{"a", "b.txt", "z.json", "c.jsonl", "link", "a"};
  const std::vector<std::uint64_t> sizes{0, 1, 2, 1, 1, 0};
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
                       doctest::Contains("circle: opening the text failed: Too many levels of "
                                         "symbolic links; remove the link"),
                       PathError);
  CHECK_THROWS_WITH_AS(list_texts({"/dev/null"}),
                       doctest::Contains("must be a regular file or a folder"), DataError);
}

TEST_CASE("a link in a folder that leads to nothing is told, not passed over") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "text");
  write_file(folder / "text/a", "1");
  const auto check_refused = [&](const std::filesystem::path& target, const char* message) {
    std::filesystem::create_symlink(target, folder / "text/link");
    for (const char* path : {"text", "text/link"}) {
      CAPTURE(path);
      CHECK_THROWS_WITH_AS(list_texts({folder / path}), doctest::Contains(message), PathError);
    }
    std::filesystem::remove(folder / "text/link");
  };
  check_refused("gone", "text/link: opening the text failed: it is a link to nothing; remove");
  check_refused("link", "text/link: opening the text failed: Too many levels of symbolic links");
  check_refused(std::string(300, 'n'), "text/link: opening the text failed: File name too long");
  check_refused("a/b", "text/link: opening the text failed: Not a directory");
}

TEST_CASE("a folder that may not be read is told, at any depth") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "text/below");
  const testing::UnreadableFolder unreadable(folder / "text/below");
  for (const char* path : {"text", "text/below"}) {
    CAPTURE(path);
    CHECK_THROWS_WITH_AS(list_texts({folder / path}),
                         doctest::Contains("text/below: listing the folder failed: Permission "
                                           "denied; give this user the right"),
                         PathError);
  }
}

TEST_CASE("tokens are no text") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "text");
  write_file(folder / "text/t", "FSDPTOK1");
  for (const char* path : {"text", "text/t"}) {
    CHECK_THROWS_WITH_AS(list_texts({folder / path}),
                         doctest::Contains("text/t: is a token file already"), DataError);
  }
  write_file(folder / "text/t", "FSDPTOK and so on");
  CHECK(list_texts({folder / "text"}).size() == 1);
}

TEST_CASE("a text begins behind its byte order mark") {
  const TemporaryFolder folder;
  write_file(folder / "a", "\xef\xbb\xbf");
  write_file(folder / "b", "\xef\xbb");
  write_file(folder / "c", "x\xef\xbb\xbf");
  const auto files = list_texts({folder / "a", folder / "b", folder / "c"});
  CHECK(files[0].begin == 3);
  CHECK(files[0].nbytes == 3);
  CHECK(files[1].begin == 0);
  CHECK(files[2].begin == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::data
