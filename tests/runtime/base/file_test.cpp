#include "runtime/base/file.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/mapped_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/unreadable_folder.h"

namespace fsdptrain {
namespace {

using doctest::Contains;
using testing::read_file;
using testing::TemporaryFolder;
using testing::UnreadableFolder;
using testing::write_file;

TEST_SUITE_BEGIN("runtime/base/file");

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::set<std::string> names_in(const TemporaryFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.insert(entry.path().filename());
  }
  return names;
}

// Files of this process may not grow beyond a number of bytes; the signal of the system is off.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t nbytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{nbytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  ~SizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_CASE("an atomic file has its name only from commit on, in the place of an older file") {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  const File reader = File::open_for_reading(folder / "f");
  AtomicFile file(folder / "f");
  file.write_at(3, bytes_of("new"));
  file.write_at(0, bytes_of("the"));
  CHECK(read_file(folder / "f") == "old");
  CHECK(names_in(folder).size() == 2);
  file.commit();
  CHECK(read_file(folder / "f") == "thenew");
  CHECK(names_in(folder) == std::set<std::string>{"f"});
  // Whoever has the old one open keeps reading it.
  std::string old(3, '?');
  CHECK(reader.read_at(0, std::as_writable_bytes(std::span(old))) == 3);
  CHECK(old == "old");
  CHECK_THROWS_WITH_AS(file.commit(), Contains("f: a file is committed once"), Error);
}

TEST_CASE("an atomic file that is not committed leaves nothing behind and the old file alone") {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write_at(0, bytes_of("half"));
  }
  CHECK(names_in(folder) == std::set<std::string>{"f"});
  CHECK(read_file(folder / "f") == "old");
}

TEST_CASE("two writers of one path do not meet: the last commit stays") {
  const TemporaryFolder folder;
  AtomicFile first(folder / "f");
  AtomicFile second(folder / "f");
  first.write_at(0, bytes_of("first, the longer one"));
  second.write_at(0, bytes_of("second"));
  second.commit();
  CHECK(read_file(folder / "f") == "second");
  first.commit();
  CHECK(read_file(folder / "f") == "first, the longer one");
  CHECK(names_in(folder) == std::set<std::string>{"f"});
}

TEST_CASE("a link is replaced by the file; what it pointed to stays as it was") {
  const TemporaryFolder folder;
  write_file(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  AtomicFile file(folder / "link");
  file.write_at(0, bytes_of("new"));
  file.commit();
  CHECK_FALSE(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_file(folder / "link") == "new");
  CHECK(read_file(folder / "target") == "old");
}

TEST_CASE("places where no file can be made are named, with the cure") {
  const TemporaryFolder folder;
  write_file(folder / "f", "");
  std::filesystem::create_symlink("loop", folder / "loop");
  const auto check_refused = [&](const std::filesystem::path& path, const char* message) {
    CAPTURE(path);
    const std::string text = path.string() + ": " + message;
    CHECK_THROWS_WITH_AS(AtomicFile{path}, Contains(text.c_str()), PathError);
  };
  check_refused(folder / "none/f",
                "creating the file failed: No such file or directory; create the folder first");
  check_refused(folder.path(), "cannot write a file there: it is a folder");
  check_refused("/dev/null", "cannot write a file there: it is a device");
  check_refused(folder / "f/g", "creating the file failed: Not a directory; what is there is no");
  check_refused(folder / "loop/g", "creating the file failed: Too many levels of symbolic links; ");
  check_refused(folder / std::string(300, 'n'),
                "creating the file failed: File name too long; give a shorter one");
  CHECK(names_in(folder) == std::set<std::string>{"f", "loop"});
}

TEST_CASE("only what the user can change about a path is told as an error of the path") {
  for (const int error : {ENOENT, ENOTDIR, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, EACCES, EPERM,
                          EROFS, ENXIO, ENODEV}) {
    CAPTURE(error);
    CHECK_THROWS_AS(fail_path("f", "opening", error), PathError);
  }
  for (const int error : {ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, EFBIG, EINTR}) {
    CAPTURE(error);
    try {
      fail_path("f", "opening", error);
    } catch (const PathError&) {
      FAIL("an error of the path");
    } catch (const IoError& refused) {
      CHECK(std::string(refused.what()).starts_with("f: opening failed: "));
    }
  }
}

TEST_CASE("a missing right is an error of the path") {
  const TemporaryFolder folder;
  write_file(folder / "f", "");
  std::filesystem::permissions(folder / "f", std::filesystem::perms::none);
  std::filesystem::create_directories(folder / "closed/in");
  const UnreadableFolder thread_without_rights(folder / "closed/in");
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::none);
  constexpr const char* kReason = "failed: Permission denied; give this user the right, or another";
  CHECK_THROWS_WITH_AS(File::open_for_reading(folder / "f"), Contains(kReason), PathError);
  CHECK_THROWS_WITH_AS(AtomicFile(folder / "closed/f"), Contains(kReason), PathError);
  CHECK_THROWS_WITH_AS(missing_folders(folder / "closed/new"), Contains(kReason), PathError);
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::owner_all);
}

TEST_CASE("missing folders are made, the outer first, or none of them") {
  const TemporaryFolder folder;
  write_file(folder / "f", "");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_symlink("gone", folder / "dangling");
  std::filesystem::create_directory(folder / "there");
  std::filesystem::create_symlink("there", folder / "link");
  using Paths = std::vector<std::filesystem::path>;
  CHECK(missing_folders(folder / "link/a/b") == Paths{folder / "link/a", folder / "link/a/b"});
  CHECK(make_folders(folder / "link/a/b") == Paths{folder / "link/a", folder / "link/a/b"});
  CHECK(std::filesystem::is_directory(folder / "there/a/b"));
  CHECK(make_folders(folder / "there/a/b").empty());
  CHECK(make_folders("").empty());
  CHECK(make_folders(folder / "there/c/") == Paths{folder / "there/c"});
  const auto check_refused = [&](const std::string& path, const char* message) {
    CAPTURE(path);
    CHECK_THROWS_WITH_AS(make_folders(folder / path), Contains(message), PathError);
  };
  check_refused("f", "f: creating the folder failed: Not a directory");
  check_refused("f/a", "f/a: creating the folder failed: Not a directory");
  check_refused("loop/a", "loop/a: creating the folder failed: Too many levels");
  check_refused("dangling",
                "dangling: creating the folder failed: it is a link to nothing; remove");
  check_refused("dangling/a/b", "dangling: creating the folder failed: it is a link to nothing");
  check_refused("new/" + std::string(300, 'n'), "creating the folder failed: File name too long");
  CHECK(names_in(folder) == std::set<std::string>{"f", "loop", "dangling", "there", "link"});
}

TEST_CASE("a write that the system cuts short is an error with the rest, the reason and the cure") {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder / "f");
    const SizeLimit limit(5);
    CHECK_THROWS_WITH_AS(file.write_at(0, bytes_of("0123456789")),
                         Contains("/f: writing 5 bytes at offset 5 failed: File too large; raise "
                                  "the limit of file sizes (ulimit -f)"),
                         IoError);
  }
  CHECK(names_in(folder).empty());
}

// The number of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST_CASE("what killed writers of the same path left is removed, and nothing else") {
  const TemporaryFolder folder;
  const std::string dead = fmt::format(".tmp-{}-", dead_process());
  const std::string alive = fmt::format(".tmp-{}-", ::getppid());
  for (const std::string& name :
       std::vector<std::string>{"f" + dead + "0", "f" + dead + "17", "f" + dead + "1x", "f" + dead,
                                "g" + dead + "0", "f.tmp--1-0", "f.tmp-0-0", "f" + alive + "0"}) {
    write_file(folder / name, "half");
  }
  std::filesystem::create_symlink("g" + dead + "0", folder / ("f" + dead + "2"));
  // In use, though its writer's number means nothing here.
  write_file(folder / ("f" + dead + "3"), "half");
  const File foreign = File::open_for_reading(folder / ("f" + dead + "3"));
  REQUIRE(::flock(foreign.descriptor(), LOCK_EX) == 0);
  AtomicFile(folder / "f").commit();
  CHECK(names_in(folder) == std::set<std::string>{"f", "f" + dead + "1x", "f" + dead,
                                                  "f" + dead + "2", "f" + dead + "3",
                                                  "g" + dead + "0", "f.tmp--1-0", "f.tmp-0-0",
                                                  "f" + alive + "0"});
}

TEST_CASE("a file under way is locked") {
  const TemporaryFolder folder;
  const AtomicFile file(folder / "f");
  const auto names = names_in(folder);
  REQUIRE(names.size() == 1);
  const File other = File::open_for_reading(folder / *names.begin());
  CHECK(::flock(other.descriptor(), LOCK_EX | LOCK_NB) != 0);
}

TEST_CASE("create makes a new file or nothing") {
  const TemporaryFolder folder;
  auto file = File::create(folder / "f");
  REQUIRE(file);
  CHECK_FALSE(File::create(folder / "f"));
  file->write_at(0, bytes_of("abc"));
  file->sync();
  CHECK(file->size() == 3);
  const File moved = std::move(*file);
  CHECK(moved.path() == folder / "f");
  CHECK(moved.size() == 3);
}

TEST_CASE("a read is short only at the end of the file") {
  const TemporaryFolder folder;
  write_file(folder / "f", "0123456789");
  const File file = File::open_for_reading(folder / "f");
  std::string out(4, '?');
  const auto read = [&](std::uint64_t offset) {
    return file.read_at(offset, std::as_writable_bytes(std::span(out)));
  };
  CHECK(read(6) == 4);
  CHECK(out == "6789");
  CHECK(read(7) == 3);
  CHECK(read(10) == 0);
  CHECK(read(1000) == 0);
}

TEST_CASE("only regular files and links to them are opened") {
  const TemporaryFolder folder;
  write_file(folder / "f", "x");
  std::filesystem::create_symlink("f", folder / "link");
  std::filesystem::create_symlink("gone", folder / "dangling");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(File::open_for_reading(folder / "link").size() == 1);
  for (const auto* name : {"none", "dangling", "f/g"}) {
    CAPTURE(name);
    CHECK_THROWS_WITH_AS(File::open_for_reading(folder / name), Contains("there is no such file"),
                         DataError);
  }
  CHECK_THROWS_WITH_AS(File::open_for_reading(folder / "dangling"),
                       Contains("there is no such file: it is a link to nothing"), DataError);
  std::filesystem::create_symlink("loop", folder / "loop");
  CHECK_THROWS_WITH_AS(File::open_for_reading(folder / "loop"),
                       Contains("loop: opening for reading failed: Too many levels of symbolic "
                                "links; remove the link"),
                       PathError);
  CHECK_THROWS_WITH_AS(File::open_for_reading(folder / std::string(300, 'n')),
                       Contains("opening for reading failed: File name too long; give a shorter"),
                       PathError);
  CHECK_THROWS_WITH_AS(File::open_for_reading(folder.path()), Contains("got a folder"), DataError);
  CHECK_THROWS_WITH_AS(File::open_for_reading(folder / "pipe"), Contains("got a pipe or device"),
                       DataError);
}

TEST_CASE("a mapping holds the bytes of its file, none of an empty one") {
  const TemporaryFolder folder;
  write_file(folder / "f", "0123456789");
  write_file(folder / "empty", "");
  const MappedFile file(folder / "f");
  CHECK(file.path() == folder / "f");
  REQUIRE(file.bytes().size() == 10);
  CHECK(file.bytes()[9] == std::byte{'9'});
  CHECK(MappedFile(folder / "empty").bytes().empty());
  CHECK_NOTHROW(file.check_size());
  std::filesystem::resize_file(folder / "f", 12);
  CHECK_NOTHROW(file.check_size());
  std::filesystem::resize_file(folder / "f", 4);
  CHECK_THROWS_WITH_AS(file.check_size(),
                       Contains("f: was truncated while in use: 4 of its 10 bytes are left"),
                       DataError);
  CHECK_THROWS_WITH_AS(MappedFile(folder / "none"), Contains("there is no such file"), DataError);
  CHECK_THROWS_WITH_AS(MappedFile(folder.path()), Contains("got a folder"), DataError);
}

TEST_CASE("a mapping outlives the name of its file, and is not taken for the file that follows") {
  const TemporaryFolder folder;
  write_file(folder / "f", "0123456789");
  const MappedFile file(folder / "f");
  CHECK(file.open().size() == 10);
  write_file(folder / "new", "abc");
  std::filesystem::rename(folder / "new", folder / "f");
  CHECK_NOTHROW(file.check_size());
  CHECK(file.bytes()[9] == std::byte{'9'});
  CHECK_THROWS_WITH_AS(file.open(), Contains("f: was replaced by another file while in use"),
                       DataError);
  std::filesystem::remove(folder / "f");
  CHECK_NOTHROW(file.check_size());
  CHECK(file.bytes()[9] == std::byte{'9'});
}

// Ends of descriptors that this process has open.
std::ptrdiff_t num_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST_CASE("neither a mapping nor a closed atomic file keeps a descriptor") {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  const auto before = num_descriptors();
  const MappedFile mapped(folder / "f");
  AtomicFile file(folder / "f");
  file.write_at(0, bytes_of("newer"));
  file.close();
  CHECK(num_descriptors() == before);
  CHECK(read_file(folder / "f") == "old");
  CHECK_FALSE(file.is_committed());
  file.commit();
  CHECK(file.is_committed());
  CHECK(read_file(folder / "f") == "newer");
  {
    AtomicFile other(folder / "g");
    other.close();
  }
  CHECK(names_in(folder) == std::set<std::string>{"f"});
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain
