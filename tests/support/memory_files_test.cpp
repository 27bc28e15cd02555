#include "tests/support/memory_files.h"

#include <set>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tests/support/file_bytes.h"

namespace fsdptrain::testing {
namespace {

using checkpoint::EntryKind;
using checkpoint::FolderEntry;

std::string names_in(checkpoint::FileSystem& files, const std::filesystem::path& path) {
  std::string names;
  for (const FolderEntry& entry : files.list(path)) {
    names += entry.name + (entry.kind == EntryKind::Folder ? "/ " : " ");
  }
  return names;
}

// What `look` says of the machine after power losses of many seeds.
template <class Look>
std::set<std::string> outcomes(const MemoryFiles& files, const Look& look) {
  constexpr std::uint64_t kSeeds = 200;
  std::set<std::string> found;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    found.insert(look(*files.after_power_loss(seed)));
  }
  return found;
}

std::set<std::string> texts(const MemoryFiles& files, const char* path) {
  return outcomes(files, [&](MemoryFiles& left) { return file_text(left, path); });
}

std::set<std::string> listings(const MemoryFiles& files, const char* path) {
  return outcomes(files, [&](MemoryFiles& left) { return names_in(left, path); });
}

}  // namespace

TEST_SUITE("support/memory files") {
  TEST_CASE("files and folders are as those of the system") {
    MemoryFiles files;
    CHECK(files.make_folder("/a"));
    CHECK_FALSE(files.make_folder("/a"));
    CHECK_THROWS_AS(files.make_folder("/b/c"), PathError);
    put_file(files, "/a/file", "hello");
    CHECK(names_in(files, "/") == "a/ ");
    CHECK(names_in(files, "/a") == "file ");
    CHECK(files.kind_of("/a/") == EntryKind::Folder);
    CHECK(files.kind_of("/a/file") == EntryKind::File);
    CHECK_FALSE(files.kind_of("/a/none").has_value());
    CHECK_FALSE(files.kind_of("/a/file/none").has_value());
    CHECK_THROWS_AS(files.open("/a/none"), DataError);
    CHECK_THROWS_AS(files.open("/a"), DataError);
    CHECK_THROWS_AS(files.list("/a/file"), DataError);
    CHECK_THROWS_AS(files.create("/a/file"), PathError);
    CHECK_THROWS_AS(files.create("/none/file"), PathError);
    CHECK_THROWS_AS(files.remove_folder("/a"), IoError);
    CHECK_THROWS_AS(files.remove_file("/a"), IoError);
    CHECK(file_text(files, "/a/file") == "hello");
    std::string text(3, '?');
    CHECK_THROWS_AS(files.open("/a/file")->read_at(4, std::as_writable_bytes(std::span(text))),
                    DataError);
  }

  TEST_CASE("a folder replaces nothing, a file replaces a file, and open files stay") {
    MemoryFiles files;
    files.make_folder("/a");
    files.make_folder("/b");
    CHECK_THROWS_AS(files.rename("/a", "/b"), IoError);
    CHECK_THROWS_AS(files.rename("/none", "/c"), IoError);
    put_file(files, "/a/x", "new");
    put_file(files, "/y", "old");
    CHECK_THROWS_AS(files.rename("/y", "/b"), IoError);
    const auto old = files.open("/y");
    files.rename("/a/x", "/y");
    CHECK(file_text(files, "/y") == "new");
    std::string text(3, '?');
    old->read_at(0, std::as_writable_bytes(std::span(text)));
    CHECK(text == "old");
    files.rename("/a", "/c");
    CHECK(names_in(files, "/") == "b/ c/ y ");
    checkpoint::remove_all(files, "/c");
    checkpoint::replace_text(files, "/y", "newer");
    CHECK(file_text(files, "/y") == "newer");
  }

  TEST_CASE("a full disk takes what fits") {
    MemoryFiles files;
    files.set_capacity(8);
    CHECK(files.free_bytes() == 8);
    put_file(files, "/a", "123");
    const auto file = files.create("/b");
    CHECK_THROWS_WITH_AS(file->write_at(0, bytes_of("123456")),
                         doctest::Contains("5 of 6 bytes were written"), IoError);
    CHECK(files.free_bytes() == 0);
    files.remove_file("/a");
    CHECK(files.free_bytes() == 3);
    file->write_at(5, bytes_of("6"));
    CHECK(file_text(files, "/b") == "123456");
  }

  TEST_CASE("a power loss loses names that were not synced, each on its own") {
    MemoryFiles files;
    put_file(files, "/a", "");
    files.make_folder("/b");
    CHECK(listings(files, "/") == std::set<std::string>{"", "a ", "a b/ ", "b/ "});
    files.sync_folder("/");
    CHECK(listings(files, "/") == std::set<std::string>{"a b/ "});
    files.remove_file("/a");
    CHECK(listings(files, "/") == std::set<std::string>{"a b/ ", "b/ "});
    files.sync_folder("/");
    files.rename("/b", "/c");
    CHECK(listings(files, "/") == std::set<std::string>{"", "b/ ", "b/ c/ ", "c/ "});
  }

  TEST_CASE("a power loss keeps what was synced and tears the rest by 512 bytes") {
    MemoryFiles files;
    const auto file = files.create("/a");
    files.sync_folder("/");
    file->write_at(0, bytes_of(std::string(1024, 'x')));
    const std::string x(512, 'x');
    const std::string zeros(512, '\0');
    CHECK(texts(files, "/a") ==
          std::set<std::string>{"", x + x, x + zeros, zeros + x, zeros + zeros});
    file->sync();
    CHECK(texts(files, "/a") == std::set<std::string>{x + x});
    file->write_at(512, bytes_of(std::string(600, 'y')));
    const std::string y(512, 'y');
    const std::string end(88, 'y');
    const std::string end_zeros(88, '\0');
    CHECK(texts(files, "/a") == std::set<std::string>{x + x, x + y, x + x + end, x + y + end,
                                                      x + x + end_zeros, x + y + end_zeros});
  }

  TEST_CASE("a power loss is the same for the same seed, and changes nothing that was there") {
    MemoryFiles files;
    files.make_folder("/a");
    for (const char* name : {"/a/1", "/a/2", "/a/3", "/a/4", "/a/5"}) {
      put_file(files, name, name);
    }
    const auto look = [](MemoryFiles& left) {
      return left.kind_of("/a") ? names_in(left, "/a") : "nothing";
    };
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto first = files.after_power_loss(seed);
      CHECK(look(*first) == look(*files.after_power_loss(seed)));
      // It is all synced.
      CHECK(look(*first) == look(*first->after_power_loss(seed + 1)));
    }
    CHECK(look(files) == "1 2 3 4 5 ");
  }

  TEST_CASE("a name that is synced before its file's bytes has torn bytes") {
    MemoryFiles files;
    put_file(files, "/a", "text");
    files.sync_folder("/");
    CHECK(texts(files, "/a") == std::set<std::string>{"", "text", std::string(4, '\0')});
  }
}

}  // namespace fsdptrain::testing
