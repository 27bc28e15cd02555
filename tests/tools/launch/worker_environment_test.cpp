#include "tools/launch/worker_environment.h"

#include <doctest/doctest.h>

namespace fsdptrain::tools {
namespace {

const Worker& worker() {
  static const Worker worker{
      .rank = 2,
      .num_ranks = 4,
      .num_threads = 3,
      .job_id = "job-7",
      .role = "default",
      .master_addr = "127.0.0.1",
      .master_port = 29511,
      .spec = {.segment = 5, .flight = 6, .store = 7, .is_bound = true, .num_processors = 12}};
  return worker;
}

}  // namespace

TEST_SUITE("tools/launch/worker_environment") {
  TEST_CASE("a worker has all variables that torchrun gives") {
    const Environment expected{
        {"RANK", "2"},
        {"LOCAL_RANK", "2"},
        {"WORLD_SIZE", "4"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"GROUP_RANK", "0"},
        {"GROUP_WORLD_SIZE", "1"},
        {"ROLE_RANK", "2"},
        {"ROLE_NAME", "default"},
        {"ROLE_WORLD_SIZE", "4"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", "29511"},
        {"TORCHELASTIC_RUN_ID", "job-7"},
        {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"TORCHELASTIC_MAX_RESTARTS", "0"},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"OMP_NUM_THREADS", "3"},
        {"FSDPTRAIN_WORKER", "1 segment=5 flight=6 store=7 bound=1 processors=12"}};
    CHECK(worker_environment({}, worker()) == expected);
  }

  TEST_CASE("what the user set stays, what another launcher set for its workers does not") {
    const Environment base{{"HOME", "/h"},
                           {"OMP_NUM_THREADS", "9"},
                           {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                           {"RANK", "11"},
                           {"FSDPTRAIN_WORKER", "1 segment=90 flight=91 store=92"},
                           {"FSDPTRAIN_TERMINAL", "80"},
                           {"TORCHELASTIC_ERROR_FILE", "/old"}};
    const Environment made = worker_environment(base, worker());
    CHECK(made.at("HOME") == "/h");
    CHECK(made.at("OMP_NUM_THREADS") == "9");
    CHECK(made.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0");
    CHECK(made.at("RANK") == "2");
    CHECK(made.at("FSDPTRAIN_WORKER") == "1 segment=5 flight=6 store=7 bound=1 processors=12");
    CHECK_FALSE(made.contains("FSDPTRAIN_TERMINAL"));
    CHECK_FALSE(made.contains("TORCHELASTIC_ERROR_FILE"));
  }

  TEST_CASE("a folder of logs and a terminal are told where they are") {
    Worker with = worker();
    with.error_file = "/logs/rank-2.error.json";
    with.terminal_columns = 120;
    const Environment made = worker_environment({}, with);
    CHECK(made.at("TORCHELASTIC_ERROR_FILE") == "/logs/rank-2.error.json");
    CHECK(made.at("FSDPTRAIN_TERMINAL") == "120");
  }
}

}  // namespace fsdptrain::tools
