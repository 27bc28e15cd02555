#include "checkpoint/folder/lock.h"

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::checkpoint {
namespace {

using namespace std::chrono_literals;
using testing::TemporaryFolder;
using testing::write_file;

namespace fs = std::filesystem;

class ManualClock final : public comm::Clock {
 public:
  comm::Nanoseconds now() const override { return comm::Nanoseconds(now_.load()); }
  void advance(comm::Nanoseconds time) { now_ += time.count(); }

 private:
  std::atomic<std::int64_t> now_ = 0;
};

LockOwner process(std::int64_t pid, const std::string& boot = "boot") {
  LockOwner owner = this_process();
  owner.host = "host-" + boot;
  owner.boot = boot;
  owner.pid_space = "pid:[1]";
  owner.pid = pid;
  return owner;
}

// A folder with processes that want its lock; nobody sleeps.
class Contest {
 public:
  std::unique_ptr<RunLock> acquire(const LockOwner& self) { return acquire(*files, self); }
  std::unique_ptr<RunLock> acquire(FileSystem& seen, const LockOwner& self) {
    RunLock::Options options;
    options.self = self;
    options.alive = [this](const LockOwner& owner) { return !dead.contains(owner.pid); };
    options.clock = &clock;
    options.sleep = [this](comm::Nanoseconds time) {
      clock.advance(time);
      if (on_sleep) {
        on_sleep();
      }
    };
    options.on_wait = [this](const std::string& owner) { waited_for.push_back(owner); };
    options.beats = false;
    return RunLock::acquire(seen, folder.path(), options);
  }
  // As one that was killed leaves it.
  void die(std::unique_ptr<RunLock> lock) {
    dead.insert(lock->owner().pid);
    fs::copy(folder / "lock", folder / "kept", fs::copy_options::recursive);
    lock.reset();
    fs::remove_all(folder / "lock");
    fs::rename(folder / "kept", folder / "lock");
  }
  std::size_t num_entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder / "lock"), fs::directory_iterator()));
  }

  TemporaryFolder folder;
  std::unique_ptr<FileSystem> files = make_real_file_system();
  ManualClock clock;
  std::set<std::int64_t> dead;
  std::function<void()> on_sleep;
  std::vector<std::string> waited_for;
};

TEST_SUITE("checkpoint/folder/lock") {
  TEST_CASE("a living owner is named, and who comes after it has given the lock back gets it") {
    Contest contest;
    auto first = contest.acquire(process(1));
    CHECK_THROWS_WITH_AS(contest.acquire(process(2)),
                         doctest::Contains("is in use by process 1 on host host-boot since 2"),
                         ConfigError);
    first->check_held();
    first.reset();
    const auto second = contest.acquire(process(2));
    second->check_held();
    CHECK(contest.num_entries() == 1);
    CHECK(contest.waited_for.empty());
  }

  TEST_CASE("an owner that died in the same boot is replaced at once") {
    Contest contest;
    contest.die(contest.acquire(process(1)));
    const auto second = contest.acquire(process(2));
    CHECK(contest.clock.now() == 0s);
    CHECK_THROWS_AS(contest.acquire(process(3)), ConfigError);
  }

  TEST_CASE("an owner of another boot or of another space of numbers is waited for") {
    Contest contest;
    LockOwner elsewhere = process(2);
    SUBCASE("another boot") {
      elsewhere = process(2, "other");
    }
    SUBCASE("another container") {
      elsewhere.pid_space = "pid:[2]";
    }
    SUBCASE("a system that does not say") {
      elsewhere.boot.clear();
    }
    contest.die(contest.acquire(process(1)));
    const auto second = contest.acquire(elsewhere);
    CHECK(contest.clock.now() == 60s);
    CHECK(contest.waited_for.size() == 1);
    CHECK(contest.waited_for.front().starts_with("process 1 on host host-boot"));
  }

  TEST_CASE("one of another boot that gives a sign of life is named and keeps the lock") {
    Contest contest;
    const auto first = contest.acquire(process(1));
    contest.on_sleep = [&] {
      if (contest.clock.now() > 50s) {
        first->beat();
      }
    };
    CHECK_THROWS_WITH_AS(contest.acquire(process(2, "other")), doctest::Contains("process 1"),
                         ConfigError);
    CHECK(contest.clock.now() < 60s);
    first->check_held();
  }

  TEST_CASE("a folder that is renamed has its owner throughout, until it gives the lock back") {
    const TemporaryFolder folder;
    const auto files = make_real_file_system();
    const auto acquire = [&](const fs::path& path, std::int64_t pid) {
      return RunLock::acquire(
          *files, path,
          {.self = process(pid), .alive = [](const LockOwner& /*owner*/) { return true; }});
    };
    files->make_folder(folder / "run");
    auto lock = acquire(folder / "run", 1);
    lock->rename_folder(folder / "old");
    CHECK_FALSE(files->kind_of(folder / "run"));
    lock->check_held();
    CHECK_THROWS_WITH_AS(acquire(folder / "old", 2), doctest::Contains("process 1"), ConfigError);
    lock.reset();
    acquire(folder / "old", 2)->check_held();
  }

  TEST_CASE("an owner that left no name is waited for") {
    Contest contest;
    fs::create_directories(contest.folder / "lock/00000001");
    const auto lock = contest.acquire(process(1));
    CHECK(contest.clock.now() == 60s);
  }

  TEST_CASE("what is in the lock's folder and no owner's stays and is in nobody's way") {
    Contest contest;
    fs::create_directories(contest.folder / "lock/mine");
    fs::create_directories(contest.folder / "lock/new.1234");
    fs::create_directories(contest.folder / "lock/9223372036854775807");
    write_file(contest.folder / "lock/7", "");
    const auto lock = contest.acquire(process(1));
    CHECK(fs::exists(contest.folder / "lock/mine"));
    CHECK_FALSE(fs::exists(contest.folder / "lock/new.1234"));
  }

  TEST_CASE("one that was taken for dead is told so, and does not take the lock away") {
    Contest contest;
    auto first = contest.acquire(process(1));
    contest.dead.insert(1);
    const auto second = contest.acquire(process(2));
    CHECK_THROWS_WITH_AS(first->check_held(), doctest::Contains("went to process 2"), IoError);
    CHECK_THROWS_AS(first->beat(), IoError);
    first.reset();
    second->check_held();
    CHECK_THROWS_AS(contest.acquire(process(3)), ConfigError);
  }

  TEST_CASE(
      "who has lost the lock because somebody removed it is told so, and leaves the next one's") {
    Contest contest;
    auto first = contest.acquire(process(1));
    fs::remove_all(contest.folder / "lock");
    const auto second = contest.acquire(process(2));
    CHECK_THROWS_WITH_AS(first->check_held(), doctest::Contains("went to process 2"), IoError);
    CHECK_THROWS_AS(first->beat(), IoError);
    first.reset();
    second->check_held();
    CHECK_THROWS_WITH_AS(contest.acquire(process(3)), doctest::Contains("process 2"), ConfigError);
  }

  TEST_CASE("of several that find a dead owner at the same time one gets the lock") {
    for (int round = 0; round < 40; ++round) {
      CAPTURE(round);
      Contest contest;
      contest.die(contest.acquire(process(1)));
      std::vector<std::unique_ptr<RunLock>> locks(4);
      std::atomic<int> num_refused = 0;
      {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < locks.size(); ++i) {
          threads.emplace_back([&, i] {
            try {
              locks[i] = contest.acquire(process(static_cast<std::int64_t>(i) + 2));
            } catch (const ConfigError&) {
              ++num_refused;
            }
          });
        }
      }
      CHECK(num_refused == 3);
      for (const auto& lock : locks) {
        if (lock) {
          lock->check_held();
        }
      }
    }
  }

  TEST_CASE("one so slow that its number had been used and removed does not get the lock") {
    Contest contest;
    contest.die(contest.acquire(process(1)));
    std::unique_ptr<RunLock> last;
    testing::FaultyFiles slow(
        *contest.files, {.counts = [&](testing::FileCall call, const fs::path& path) {
          if (call == testing::FileCall::MakeFolder && path.filename() != "lock" && !last) {
            contest.die(contest.acquire(process(3)));
            last = contest.acquire(process(4));
          }
          return false;
        }});
    CHECK_THROWS_WITH_AS(contest.acquire(slow, process(2)), doctest::Contains("process 4 on"),
                         ConfigError);
    last->check_held();
    CHECK(contest.num_entries() == 1);
  }

  TEST_CASE(
      "this process is alive, a child that has ended is not, and nor is another of its number") {
    const LockOwner self = this_process();
    CHECK(is_neighbor(self, this_process()));
    CHECK(is_alive(self));
    LockOwner later = self;
    later.start_time += 1;
    CHECK_FALSE(is_alive(later));
    Process child({.program = "true", .arguments = {"true"}});
    LockOwner of_child = self;
    of_child.pid = child.id();
    child.wait();
    CHECK_FALSE(is_alive(of_child));
  }

  TEST_CASE("an owner is read back, and text that is none is not") {
    LockOwner owner = process(1);
    owner.host = "a \"host\"";
    CHECK(parse_owner(to_text(owner)) == owner);
    for (const char* text : {"", "{}", "[]", "null", "{\"host\": 1}"}) {
      CAPTURE(text);
      CHECK_FALSE(parse_owner(text));
    }
  }
}

}  // namespace
}  // namespace fsdptrain::checkpoint
