#include "tools/run/reporter.h"

#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::tools {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

TEST_SUITE_BEGIN("tools/run/reporter");

RunFolder folder_at(const std::filesystem::path& dir) {
  Config config;
  config.run.dir = dir;
  RunFolder folder = RunFolder::claim(config, {});
  folder.open();
  return folder;
}

TEST_CASE("durations have hours only where there are some") {
  CHECK(as_duration(0) == "0:00");
  CHECK(as_duration(6.6) == "0:07");
  CHECK(as_duration(3599) == "59:59");
  CHECK(as_duration(3723) == "1:02:03");
}

TEST_CASE("every line of metrics and samples names the attempt, and text that is no UTF-8 is") {
  const TemporaryFolder folder;
  const RunFolder run = folder_at(folder / "run");
  Reporter reporter(run, {.attempt = 3,
                          .steps = 9,
                          .samples = true,
                          .resumed_step = 2,
                          .checkpoint = "step-00000002"});
  reporter.event({{"step", 2}, {"what", "x"}});
  reporter.validation(4, 0.5);
  reporter.sample({.step = 4, .prompt = "a\n", .text = "b\xff", .seed = 7});
  CHECK(read_file(run.metrics()) ==
        "{\"attempt\":3,\"step\":2,\"event\":\"resume\",\"checkpoint\":\"step-00000002\"}\n"
        "{\"attempt\":3,\"step\":2,\"what\":\"x\"}\n"
        "{\"attempt\":3,\"step\":4,\"validation_loss\":0.5}\n");
  CHECK(read_file(run.samples()) ==
        "{\"attempt\":3,\"step\":4,\"prompt\":\"a\\n\",\"text\":\"b\xef\xbf\xbd\",\"seed\":7}\n");
  reporter.check_complete("w");
}

TEST_CASE("what was not measured is null in a line, and what was is a number") {
  const TemporaryFolder folder;
  const RunFolder run = folder_at(folder / "run");
  Reporter reporter(run, {.steps = 9});
  reporter.step({.step = 1});
  reporter.step({.step = 2, .utilization = 0.5, .waits = WaitSummary{{0}, {0}, std::nullopt}});
  reporter.step({.step = 3, .waits = WaitSummary{{0, 2}, {2, 0}, 0}});
  std::istringstream lines(read_file(run.metrics()));
  const auto next = [&] {
    std::string line;
    CHECK(std::getline(lines, line));
    return nlohmann::json::parse(line);
  };
  const auto none = next();
  for (const char* key : {"utilization", "wait_seconds", "waited_for_seconds", "straggler"}) {
    CHECK(none.at(key).is_null());
  }
  const auto alone = next();
  CHECK(alone.at("utilization") == 0.5);
  CHECK(alone.at("wait_seconds").get<std::vector<double>>() == std::vector<double>{0});
  CHECK(alone.at("waited_for_seconds").get<std::vector<double>>() == std::vector<double>{0});
  CHECK(alone.at("straggler").is_null());
  const auto two = next();
  CHECK(two.at("utilization").is_null());
  CHECK(two.at("wait_seconds").get<std::vector<double>>() == std::vector<double>{0, 2});
  CHECK(two.at("straggler") == 0);
}

TEST_CASE("a run without prompts has no file of samples") {
  const TemporaryFolder folder;
  const RunFolder run = folder_at(folder / "run");
  const Reporter reporter(run, {});
  CHECK(std::filesystem::exists(run.metrics()));
  CHECK_FALSE(std::filesystem::exists(run.samples()));
}

TEST_CASE("lines that cannot be written are missing, later ones are there, and the end says so") {
  const TemporaryFolder folder;
  const RunFolder run = folder_at(folder / "run");
  Reporter reporter(run, {.samples = true});
  reporter.event({{"step", 1}});
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{30, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  reporter.event({{"step", 2}});
  reporter.event({{"step", 3}});
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  reporter.event({{"step", 4}});
  CHECK(read_file(run.metrics()) == "{\"attempt\":1,\"step\":1}\n{\"attempt\":1,\"step\":4}\n");
  CHECK_THROWS_WITH_AS(
      reporter.check_complete("w"),
      doctest::Contains("metrics.jsonl could not be written in full during the run: w is complete"),
      IoError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
