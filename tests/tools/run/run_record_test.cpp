#include "tools/run/run_record.h"

#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "tests/support/temporary_folder.h"

namespace fsdptrain::tools {
namespace {

using testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

TEST_SUITE_BEGIN("tools/run/run_record");

RunFacts some_facts() {
  return {.num_ranks = 5,
          .data = {{.path = "a.tok", .nbytes = 7, .num_tokens = 3, .fingerprint = "xxh3:1"},
                   {.path = "\xff", .nbytes = 1, .num_tokens = 0, .fingerprint = ""}},
          .num_parameters = 12,
          .flops_per_token = 1.5e6,
          .measured_rate = 2e9};
}

Json read(const std::filesystem::path& path) {
  return Json::parse(testing::read_file(path));
}

std::time_t time_of(const std::string& iso) {
  std::tm parts{};
  REQUIRE(::strptime(iso.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) != nullptr);
  return ::timegm(&parts);
}

TEST_CASE("a record says by what, where and on what the run is made") {
  const TemporaryFolder folder;
  RankContext context({.threads = 3});
  const ContextGuard guard(context);
  ::setenv("FSDPTRAIN_SOMETHING", "a=b", 1);
  const RunRecord record(folder / "run.json", {}, some_facts());
  ::unsetenv("FSDPTRAIN_SOMETHING");
  CHECK(record.attempt() == 1);
  const Json json = read(folder / "run.json");
  CHECK(json.at("format") == "fsdptrain-run");
  CHECK(json.at("format_version") == 1);
  CHECK(json.at("attempt") == 1);
  CHECK(std::abs(std::difftime(time_of(json.at("started")), std::time(nullptr))) < 60);
  for (const char* key : {"version", "commit", "compiler", "build_type", "gemm"}) {
    CHECK_FALSE(json.at("program").at(key).get<std::string>().empty());
  }
  CHECK(json.at("command_line").at(0).get<std::string>().ends_with("tools_tests"));
  CHECK(json.at("environment").at("FSDPTRAIN_SOMETHING") == "a=b");
  CHECK_FALSE(json.at("environment").contains("PATH"));
  const Json& machine = json.at("machine");
  for (const char* key : {"host", "os", "cpu", "isa"}) {
    CHECK_FALSE(machine.at(key).get<std::string>().empty());
  }
  CHECK(machine.at("memory_bytes").get<double>() > 1 << 20);
  CHECK(machine.at("threads") == 3);
  CHECK(machine.at("measured_flops_per_second") == 2e9);
  CHECK(json.at("ranks") == 5);
  CHECK(json.at("libraries").contains("fmt"));
  CHECK(json.at("data").at(0) ==
        Json{{"path", "a.tok"}, {"bytes", 7}, {"tokens", 3}, {"fingerprint", "xxh3:1"}});
  // A path need not be UTF-8; JSON must be.
  CHECK(json.at("data").at(1).at("path") == "\xef\xbf\xbd");
  CHECK(json.at("parameters") == 12);
  CHECK(json.at("flops_per_token") == 1.5e6);
  CHECK(json.at("flops_convention").get<std::string>().starts_with("6 x "));
  CHECK(json.at("status") == "running");
  CHECK_FALSE(json.contains("exit_code"));
}

TEST_CASE("a rate that nobody measured is null in the record") {
  const TemporaryFolder folder;
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  RunFacts facts = some_facts();
  facts.measured_rate = std::nullopt;
  const RunRecord record(folder / "run.json", {}, facts);
  CHECK(read(folder / "run.json").at("machine").at("measured_flops_per_second").is_null());
}

TEST_CASE("the end of a run is noted beside what was there") {
  const TemporaryFolder folder;
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  RunRecord record(folder / "run.json", {}, some_facts());
  const Json before = read(folder / "run.json");
  const struct {
    RunStatus status;
    const char* name;
  } ends[] = {
      {RunStatus::Done, "done"}, {RunStatus::Stopped, "stopped"}, {RunStatus::Failed, "failed"}};
  for (const auto& [status, name] : ends) {
    record.end({.status = status, .exit_code = 7, .steps = 5, .seconds = 1.5, .error = "why"});
    Json json = read(folder / "run.json");
    CHECK(json.at("status") == name);
    CHECK(json.at("exit_code") == 7);
    CHECK(json.at("steps") == 5);
    CHECK(json.at("seconds") == 1.5);
    CHECK(json.at("error") == "why");
    CHECK(time_of(json.at("ended")) >= time_of(json.at("started")));
    for (const char* key : {"ended", "exit_code", "steps", "seconds", "error"}) {
      json.erase(key);
    }
    json["status"] = "running";
    CHECK(json == before);
  }
}

TEST_CASE("the next attempt is counted, and says what those before it were") {
  const TemporaryFolder folder;
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  Config config;
  CHECK_FALSE(EarlierRun::read(folder / "run.json"));
  { RunRecord(folder / "run.json", config, some_facts()); }
  const auto first = EarlierRun::read(folder / "run.json");
  CHECK(first->attempt() == 1);
  CHECK_FALSE(first->is_done());
  CHECK(first->steps() == 0);
  CHECK(first->data()[0].fingerprint == "xxh3:1");
  CHECK(first->config().optimizer.lr == config.optimizer.lr);

  config.optimizer.lr = 0.25;
  RunFacts facts = some_facts();
  facts.resumed_step = 3;
  facts.changes = {{"optimizer.lr", "0.001", "0.25"}};
  RunRecord record(folder / "run.json", config, facts, first);
  CHECK(record.attempt() == 2);
  record.end({.status = RunStatus::Done, .exit_code = 0, .steps = 9, .seconds = 2});
  const Json json = read(folder / "run.json");
  CHECK(json.at("attempt") == 2);
  CHECK(json.at("resumed_step") == 3);
  CHECK(json.at("changes") ==
        Json::array({{{"key", "optimizer.lr"}, {"before", "0.001"}, {"now", "0.25"}}}));
  CHECK(json.at("earlier").size() == 1);
  CHECK(json.at("earlier").at(0).at("status") == "running");
  CHECK(json.at("earlier").at(0).at("ranks") == 5);
  CHECK_FALSE(json.at("earlier").at(0).contains("machine"));

  const auto second = EarlierRun::read(folder / "run.json");
  CHECK(second->is_done());
  CHECK(second->steps() == 9);
  CHECK(second->config().optimizer.lr == 0.25);
  CHECK(second->numerics() ==
        std::set<std::string>{hash_of({}).numerics, hash_of(config).numerics});
  const RunRecord third(folder / "run.json", config, some_facts(), second);
  CHECK(third.attempt() == 3);
  CHECK(read(folder / "run.json").at("earlier").at(1).at("steps") == 9);
}

TEST_CASE("a record is told from other files") {
  const TemporaryFolder folder;
  RankContext context({.threads = 1});
  const ContextGuard guard(context);
  const RunRecord record(folder / "run.json", {}, {});
  CHECK(is_run_record(folder / "run.json"));
  CHECK_FALSE(is_run_record(folder / "none"));
  CHECK_FALSE(is_run_record(folder.path()));
  CHECK_THROWS_AS(RunRecord(folder / "no/folder/run.json", {}, RunFacts{}), IoError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace fsdptrain::tools
