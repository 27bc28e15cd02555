#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "checkpoint/io/file_system.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::checkpoint {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::string> names_in(FileSystem& files, const fs::path& path) {
  std::vector<std::string> names;
  for (const FolderEntry& entry : files.list(path)) {
    names.push_back(entry.name);
  }
  return names;
}

}  // namespace

TEST_SUITE("checkpoint/io real file system") {
  TEST_CASE("bytes that were written at any place are read back") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    const auto written = files->create(folder / "file");
    CHECK(written->path() == folder / "file");
    written->write_at(4, bytes_of("efgh"));
    written->write_at(0, bytes_of("abcd"));
    written->write_at(0, {});
    written->begin_sync(0, 8);
    written->sync();
    written->close();
    CHECK(read_file(folder / "file") == "abcdefgh");

    const auto read = files->open(folder / "file");
    CHECK(read->path() == folder / "file");
    CHECK(read->size() == 8);
    std::string text(4, '?');
    read->read_at(2, std::as_writable_bytes(std::span(text)));
    CHECK(text == "cdef");
    CHECK_THROWS_WITH_AS(
        read->read_at(6, std::as_writable_bytes(std::span(text))),
        doctest::Contains(
            "file: 4 bytes from byte 6 on are asked for, but the file ends at byte 8"),
        DataError);
  }

  TEST_CASE("a file that was cut behind opening is an error that names both sizes") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    write_new(*files, folder / "file", "abcdefgh");
    const auto read = files->open(folder / "file");
    REQUIRE(::truncate((folder / "file").c_str(), 3) == 0);
    std::string text(8, '?');
    CHECK_THROWS_WITH_AS(read->read_at(0, std::as_writable_bytes(std::span(text))),
                         doctest::Contains("ends at byte 3; it had 8 when it was opened"),
                         DataError);
  }

  TEST_CASE("what is no regular file is not opened, and a link is not followed") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    write_new(*files, folder / "file", "x");
    fs::create_symlink(folder / "file", folder / "link");
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    CHECK_THROWS_WITH_AS(files->open(folder / "none"),
                         doctest::Contains("none: there is no such file"), DataError);
    CHECK_THROWS_WITH_AS(files->open(folder / "file" / "x"),
                         doctest::Contains("x: there is no such file"), DataError);
    CHECK_THROWS_WITH_AS(files->open(folder.path()),
                         doctest::Contains("must be a regular file, got a folder"), DataError);
    CHECK_THROWS_WITH_AS(files->open(folder / "link"),
                         doctest::Contains("link: must be a regular file, got a link"), DataError);
    CHECK_THROWS_WITH_AS(files->open(folder / "pipe"),
                         doctest::Contains("pipe: must be a regular file, got a pipe or device"),
                         DataError);
  }

  TEST_CASE("create makes new files only") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    write_new(*files, folder / "file", "old");
    fs::create_symlink(folder / "elsewhere", folder / "link");
    CHECK_THROWS_WITH_AS(files->create(folder / "file"),
                         doctest::Contains("there is something of this name already"), PathError);
    CHECK_THROWS_AS(files->create(folder / "link"), PathError);
    CHECK_THROWS_WITH_AS(files->create(folder / "none" / "file"),
                         doctest::Contains("create the folder first"), PathError);
    CHECK(read_file(folder / "file") == "old");
    CHECK_FALSE(fs::exists(folder / "elsewhere"));
  }

  TEST_CASE("a listing is in the order of names and says what each is") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    CHECK(files->list(folder.path()).empty());
    write_new(*files, folder / "b", "");
    CHECK(files->make_folder(folder / "c"));
    CHECK_FALSE(files->make_folder(folder / "c"));
    CHECK_FALSE(files->make_folder(folder / "b"));
    fs::create_symlink(folder / "c", folder / "a");
    const std::vector<FolderEntry> entries = files->list(folder.path());
    REQUIRE(entries.size() == 3);
    CHECK(entries[0].name == "a");
    CHECK(entries[0].kind == EntryKind::Other);
    CHECK(entries[1].name == "b");
    CHECK(entries[1].kind == EntryKind::File);
    CHECK(entries[2].name == "c");
    CHECK(entries[2].kind == EntryKind::Folder);
    CHECK(files->kind_of(folder / "a") == EntryKind::Other);
    CHECK(files->kind_of(folder / "b") == EntryKind::File);
    CHECK(files->kind_of(folder / "c") == EntryKind::Folder);
    CHECK_FALSE(files->kind_of(folder / "d").has_value());
    CHECK_FALSE(files->kind_of(folder / "b" / "d").has_value());
    CHECK_THROWS_WITH_AS(files->list(folder / "d"), doctest::Contains("there is no such folder"),
                         DataError);
    CHECK_THROWS_AS(files->list(folder / "b"), DataError);
    CHECK_THROWS_AS(files->make_folder(folder / "d" / "e"), PathError);
  }

  TEST_CASE("a folder replaces nothing, a file replaces a file") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    REQUIRE(files->make_folder(folder / "from"));
    REQUIRE(files->make_folder(folder / "empty"));
    REQUIRE(files->make_folder(folder / "full"));
    write_new(*files, folder / "from" / "file", "new");
    write_new(*files, folder / "full" / "file", "old");
    for (const char* to : {"empty", "full"}) {
      CHECK_THROWS_WITH_AS(files->rename(folder / "from", folder / to),
                           doctest::Contains("there is something of this name already"), IoError);
    }
    CHECK(names_in(*files, folder / "empty").empty());
    CHECK(read_file(folder / "full" / "file") == "old");
    files->rename(folder / "from", folder / "to");
    CHECK(names_in(*files, folder.path()) == std::vector<std::string>{"empty", "full", "to"});
    files->rename(folder / "to" / "file", folder / "full" / "file");
    CHECK(read_file(folder / "full" / "file") == "new");
    files->sync_folder(folder.path());
    CHECK_THROWS_AS(files->rename(folder / "none", folder / "other"), IoError);
    CHECK_THROWS_AS(files->sync_folder(folder / "none"), IoError);
  }

  TEST_CASE("only empty folders are removed, and what a failure leaves is said") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    REQUIRE(files->make_folder(folder / "a"));
    write_new(*files, folder / "a" / "file", "x");
    CHECK_THROWS_AS(files->remove_folder(folder / "a"), IoError);
    CHECK_THROWS_AS(files->remove_file(folder / "a"), IoError);
    CHECK_THROWS_WITH_AS(files->remove_file(folder / "none"), doctest::Contains("removing"),
                         IoError);
    files->remove_file(folder / "a" / "file");
    files->remove_folder(folder / "a");
    CHECK(names_in(*files, folder.path()).empty());
  }

  TEST_CASE("a tree is removed with links in it, not what they lead to") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    write_new(*files, folder / "kept", "x");
    fs::create_directories(folder / "tree" / "a" / "b");
    fs::create_directories(folder / "tree" / "c");
    write_new(*files, folder / "tree" / "a" / "b" / "file", "x");
    fs::create_symlink(folder / "kept", folder / "tree" / "link");
    fs::create_directory_symlink(folder.path(), folder / "tree" / "c" / "up");
    remove_all(*files, folder / "tree");
    remove_all(*files, folder / "tree");
    CHECK(names_in(*files, folder.path()) == std::vector<std::string>{"kept"});
  }

  TEST_CASE("a text is replaced in one step, also over what a killed writer left") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    replace_text(*files, folder / "latest", "step-1\n");
    CHECK(read_text(*files, folder / "latest", 100) == "step-1\n");
    write_new(*files, folder / "latest.new", "half");
    replace_text(*files, folder / "latest", "step-22\n");
    CHECK(read_text(*files, folder / "latest", 8) == "step-22\n");
    CHECK(names_in(*files, folder.path()) == std::vector<std::string>{"latest"});
    CHECK_THROWS_WITH_AS(read_text(*files, folder / "latest", 7),
                         doctest::Contains("latest: it may have 7 bytes at most, got 8"),
                         DataError);
  }

  TEST_CASE("an error of a write says how much was written, and how much room there is") {
    const TemporaryFolder folder;
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
      MESSAGE("SKIPPED, nothing was tested: this user may not mount a file system");
      return;
    }
    {
      const auto files = make_real_file_system();
      const auto file = files->create(folder / "file");
      const std::string text(100000, 'x');
      CHECK_THROWS_WITH_AS(
          file->write_at(0, bytes_of(text)),
          doctest::Contains("/file: writing 34464 bytes at offset 65536 (0 bytes are free there) "
                            "failed: No space left on device; free space there"),
          IoError);
      CHECK_THROWS_WITH_AS(file->write_at(0, bytes_of(text)),
                           doctest::Contains("65536 of 100000 bytes were written: /"), IoError);
    }
    ::umount(folder.path().c_str());
  }
}

}  // namespace fsdptrain::checkpoint
