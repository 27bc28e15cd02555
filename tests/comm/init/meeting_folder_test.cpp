#include "comm/init/meeting_folder.h"

#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "comm/error.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::comm {
namespace {

using namespace std::chrono_literals;

// What `run` throws, but for a timeout; empty where it throws nothing else.
template <class Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const TimeoutError&) {
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST_SUITE("comm/meeting_folder") {
  TEST_CASE("a folder that goes while it is looked at is one that is not there") {
    const testing::TemporaryFolder folder;
    const std::filesystem::path path = folder / "job";
    const store::Secret token = store::Secret::random();
    constexpr int kJobs = 1000;
    constexpr std::size_t kLooking = 2;
    std::string error_of_rank_0;
    std::vector<std::string> errors(kLooking);
    std::atomic<bool> is_over = false;
    {
      std::vector<std::jthread> ranks;
      for (std::string& error : errors) {
        ranks.emplace_back([&] {
          while (!is_over && error.empty()) {
            error = error_of([&] { come_to(path, Deadline(monotonic_clock(), 0s)); });
          }
        });
      }
      for (int i = 0; i < kJobs && error_of_rank_0.empty(); ++i) {
        error_of_rank_0 = error_of([&] {
          const MeetingFolder job(path);
          const auto listener = job.listen();
          job.publish(token);
        });
      }
      is_over = true;
    }
    CHECK(error_of_rank_0 == "");
    for (const std::string& error : errors) {
      CHECK(error == "");
    }
    CHECK(folder.num_files() == 0);
  }

  TEST_CASE("memory of a rank 0 that has ended is no fault of the host's") {
    const pid_t ended = ::fork();
    if (ended == 0) {
      ::_exit(0);
    }
    REQUIRE(::waitpid(ended, nullptr, 0) == ended);
    const std::string memory = fmt::format("/proc/{}/fd/3", ended);
    CHECK_THROWS_WITH_AS(
        open_memory_of_rank_0(memory, [] { fail<PeerError>("the connection ended"); }),
        doctest::Contains("the connection ended"), PeerError);
    CHECK_THROWS_WITH_AS(
        open_memory_of_rank_0(memory, [] {}),
        doctest::Contains(fmt::format("{}, the memory of rank 0, cannot be opened: No such file or "
                                      "directory; ranks of one host must see each other's",
                                      memory)
                              .c_str()),
        ConfigError);
  }
}

}  // namespace
}  // namespace fsdptrain::comm
