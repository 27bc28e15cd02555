#include "tests/support/faulty_files.h"

#include <cerrno>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/file_bytes.h"
#include "tests/support/memory_files.h"

namespace fsdptrain::testing {
namespace {

void save(checkpoint::FileSystem& files) {
  files.make_folder("/a");
  const auto file = files.create("/a/file");
  file->write_at(0, bytes_of("abcdefgh"));
  file->begin_sync(0, 8);
  file->sync();
  file->close();
  files.sync_folder("/a");
  files.rename("/a", "/b");
}

const std::vector<std::string> kCalls = {"MakeFolder /a",     "Create /a/file", "Write /a/file",
                                         "BeginSync /a/file", "Sync /a/file",   "Close /a/file",
                                         "SyncFolder /a",     "Rename /b"};

}  // namespace

TEST_SUITE("support/faulty files") {
  TEST_CASE("without a fault all goes through, and calls are counted in order") {
    MemoryFiles memory;
    FaultyFiles files(memory);
    save(files);
    CHECK(files.calls() == kCalls);
    CHECK_FALSE(files.has_struck());
    CHECK(file_text(files, "/b/file") == "abcdefgh");
    CHECK(files.nbytes_read() == 8);
    CHECK(files.list("/").size() == 1);
    CHECK(files.num_calls() == 11);
  }

  TEST_CASE("a kill ends everything at any call, and a write halfway") {
    for (std::size_t call = 0; call < kCalls.size(); ++call) {
      CAPTURE(call);
      MemoryFiles memory;
      FaultyFiles files(memory, {.kind = FileFault::Kind::Kill,
                                 .at_call = static_cast<std::int64_t>(call),
                                 .counts = {}});
      CHECK_THROWS_AS(save(files), Killed);
      CHECK(files.has_struck());
      CHECK(files.num_calls() == static_cast<std::int64_t>(call) + 1);
      CHECK_THROWS_AS(files.list("/"), Killed);
      if (call == 2) {
        CHECK(file_text(memory, "/a/file") == "abcd");
      }
      CHECK_FALSE(memory.kind_of("/b").has_value());
    }
  }

  TEST_CASE("an errno fails one call, or all from there on") {
    for (std::size_t call = 0; call < kCalls.size(); ++call) {
      CAPTURE(call);
      MemoryFiles memory;
      FaultyFiles files(memory, {.kind = FileFault::Kind::Errno,
                                 .at_call = static_cast<std::int64_t>(call),
                                 .error = ENOSPC,
                                 .counts = {}});
      // Hints do not fail.
      if (call == 3) {
        save(files);
        CHECK_FALSE(files.has_struck());
        continue;
      }
      CHECK_THROWS_WITH_AS(save(files), doctest::Contains("No space left on device"), IoError);
      CHECK(files.has_struck());
      files.list("/");
    }
    MemoryFiles memory;
    FaultyFiles files(
        memory,
        {.kind = FileFault::Kind::Errno, .at_call = 1, .error = EIO, .lasts = true, .counts = {}});
    files.list("/");
    CHECK_THROWS_AS(files.list("/"), IoError);
    CHECK_THROWS_AS(files.list("/"), IoError);
  }

  TEST_CASE("only chosen calls count") {
    MemoryFiles memory;
    FaultyFiles files(memory, {.kind = FileFault::Kind::Errno,
                               .at_call = 0,
                               .error = EIO,
                               .counts = [](FileCall call, const std::filesystem::path& path) {
                                 return call == FileCall::Sync && path.filename() == "file";
                               }});
    CHECK_THROWS_WITH_AS(save(files), doctest::Contains("/a/file: the test's Sync failed"),
                         IoError);
    CHECK(files.calls() == std::vector<std::string>{"Sync /a/file"});
  }

  TEST_CASE("reads and writes of few bytes at a time move the same bytes") {
    const std::string text(10000, 'x');
    for (const std::size_t most : {1, 7, 4095}) {
      CAPTURE(most);
      MemoryFiles memory;
      FaultyFiles files(memory, {.counts = {}, .max_transfer = most});
      put_file(files, "/a", text);
      CHECK(file_text(memory, "/a") == text);
      CHECK(file_text(files, "/a") == text);
      const auto transfers = static_cast<std::int64_t>((text.size() + most - 1) / most);
      // Beside: looking, creating, closing, opening.
      CHECK(files.num_calls() == 2 * transfers + 4);
      std::string cut(2, '?');
      CHECK_THROWS_AS(files.open("/a")->read_at(9999, std::as_writable_bytes(std::span(cut))),
                      DataError);
    }
  }
}

}  // namespace fsdptrain::testing
