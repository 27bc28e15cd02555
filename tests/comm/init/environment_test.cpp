#include "comm/init/environment.h"

#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

using doctest::Contains;
using Values = std::map<std::string, std::string, std::less<>>;

Membership read(const Values& values) {
  return read_environment([&](std::string_view name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
}

Values with(Values values, const Values& more) {
  for (const auto& [name, value] : more) {
    values[name] = value;
  }
  return values;
}

const Values kByHand{{"RANK", "2"}, {"WORLD_SIZE", "4"}};
const Values kTorchrun{{"RANK", "2"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_RANK", "0"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_PORT", "29511"},
                       {"TORCHELASTIC_RUN_ID", "run 7"}};
const Values kOwn =
    with(kTorchrun, {{"LOCAL_RANK", "2"},
                     {"LOCAL_WORLD_SIZE", "4"},
                     {"FSDPTRAIN_WORKER", "1 segment=5 flight=16 store=7 bound=1 processors=12"}});
const Values kSlurm{{"SLURM_JOB_ID", "81"},        {"SLURM_STEP_ID", "0"},
                    {"SLURM_PROCID", "3"},         {"SLURM_LOCALID", "3"},
                    {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_NODEID", "0"},
                    {"SLURM_STEP_NUM_NODES", "1"}};
const Values kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                      {"PMIX_NAMESPACE", "prterun-1@1"}};
const Values kPmi{{"PMI_RANK", "1"}, {"PMI_SIZE", "5"}};

void expect_error(const Values& values, const char* text) {
  CHECK_THROWS_WITH_AS(read(values), Contains(text), ConfigError);
}

}  // namespace

TEST_SUITE("comm/environment") {
  TEST_CASE("without variables, and with empty ones, there is one rank") {
    for (const Values& values : {Values{}, Values{{"RANK", ""}, {"WORLD_SIZE", ""}},
                                 Values{{"LOCAL_RANK", "3"}, {"MASTER_PORT", "1"}}}) {
      const Membership one = read(values);
      CHECK(one.launcher == Launcher::None);
      CHECK(one.rank == 0);
      CHECK(one.size == 1);
      CHECK(to_string(one) == "one rank");
    }
  }

  TEST_CASE("each launcher is recognised with its ranks, local ranks and job") {
    struct Row {
      Values values;
      Launcher launcher;
      std::vector<int> numbers;
      std::string job;
      std::string port;
      std::string text;
    };
    const std::vector<Row> rows{
        {kByHand,
         Launcher::Torchrun,
         {2, 4, 2, 4},
         "",
         "29500",
         "rank 2 of 4, by torchrun (RANK, WORLD_SIZE)"},
        {kTorchrun,
         Launcher::Torchrun,
         {2, 4, 0, 2},
         "run 7",
         "29511",
         "rank 2 of 4, by torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE)"},
        {kOwn,
         Launcher::Own,
         {2, 4, 2, 4},
         "run 7",
         "29511",
         "rank 2 of 4, by fsdptrain launch (FSDPTRAIN_WORKER, RANK, WORLD_SIZE, LOCAL_RANK, "
         "LOCAL_WORLD_SIZE)"},
        {kSlurm,
         Launcher::Slurm,
         {3, 6, 3, 6},
         "81.0",
         "",
         "rank 3 of 6, by Slurm (SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS, "
         "SLURM_LOCALID, SLURM_STEP_NUM_NODES)"},
        {kOpenMpi,
         Launcher::OpenMpi,
         {1, 3, 1, 3},
         "prterun-1@1",
         "",
         "rank 1 of 3, by Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, "
         "OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE)"},
        {kPmi, Launcher::Pmi, {1, 5, 1, 5}, "", "", "rank 1 of 5, by PMI (PMI_RANK, PMI_SIZE)"},
    };
    for (const Row& row : rows) {
      const Membership found = read(row.values);
      CAPTURE(row.text);
      CHECK(found.launcher == row.launcher);
      CHECK(std::vector{found.rank, found.size, found.local_rank, found.local_size} == row.numbers);
      CHECK(found.job_id == row.job);
      CHECK(found.port == row.port);
      CHECK(to_string(found) == row.text);
      CHECK(found.worker.has_value() == (row.launcher == Launcher::Own));
    }
    CHECK(read(kOwn).worker == WorkerSpec{5, 16, 7, true, 12});
  }

  TEST_CASE("of several launchers that agree the innermost counts") {
    Values values = with(kPmi, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}});
    CHECK(read(values).launcher == Launcher::Pmi);
    values = with(values, {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
    CHECK(read(values).launcher == Launcher::OpenMpi);
    values = with(with(values, kSlurm), {{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}});
    CHECK(read(values).launcher == Launcher::Slurm);
    values = with(values, kByHand);
    CHECK(read(values).launcher == Launcher::Torchrun);
    values = with(values, kOwn);
    CHECK(read(values).launcher == Launcher::Own);
  }

  TEST_CASE("launchers that contradict each other are named with their variables") {
    const Values one{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
    for (const Values& values :
         {with(one, kOpenMpi), with(one, kPmi), with(one, kSlurm), with(kByHand, kOpenMpi),
          with(kTorchrun, kOpenMpi), with(kOpenMpi, kPmi), with(kSlurm, kPmi),
          with(kSlurm, kOpenMpi),
          with(kByHand, {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}}),
          with(kByHand, {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}})}) {
      expect_error(values, ": unset those of one launcher");
      CHECK(read(with(values, kOwn)).launcher == Launcher::Own);
    }
    expect_error(with(one, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
                 "RANK, WORLD_SIZE say rank 0 of 1, but OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE "
                 "say rank 1 of 2");
  }

  TEST_CASE("what another launcher started on each node may be a torchrun") {
    const Values of_nodes{{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
    CHECK(read(with(kTorchrun, of_nodes)).rank == 2);
    CHECK(read(with(kTorchrun, of_nodes)).size == 4);
    expect_error(with(kByHand, of_nodes), "unset those of one launcher");
    CHECK(read(with(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}}), kByHand)).size == 4);
  }

  TEST_CASE("a batch script of Slurm is no rank, and a step of one task is one") {
    Values batch = kSlurm;
    batch.erase("SLURM_STEP_ID");
    CHECK(read(batch).launcher == Launcher::None);
    const Membership shell = read(with(
        kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
    CHECK(shell.size == 1);
    CHECK(read(with(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}}), kOpenMpi)).launcher ==
          Launcher::OpenMpi);
  }

  TEST_CASE("a step of Slurm on several nodes has the tasks of its node as local ranks") {
    const auto on_node = [](const char* tasks, const char* node) {
      return read(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "3"},
                                {"SLURM_LOCALID", "1"},
                                {"SLURM_STEP_TASKS_PER_NODE", tasks},
                                {"SLURM_NODEID", node}}))
          .local_size;
    };
    CHECK(on_node("2(x3)", "2") == 2);
    CHECK(on_node("3,2(x2)", "0") == 3);
    CHECK(on_node("2(x2),3", "2") == 3);
    for (const char* tasks : {"", "2", "2(x", "2(x3", "x", "-2(x3)", "7(x3)", "2(x99999999999)"}) {
      CAPTURE(tasks);
      CHECK_THROWS_WITH_AS(
          on_node(tasks, "2"),
          Contains("SLURM_STEP_TASKS_PER_NODE must say how many of 6 tasks node 2"), ConfigError);
    }
  }

  TEST_CASE("a set of variables that is not whole names what is missing") {
    expect_error({{"RANK", "0"}},
                 "WORLD_SIZE is not set, but RANK is: set all variables of torchrun");
    expect_error({{"WORLD_SIZE", "4"}, {"RANK", ""}}, "RANK is not set, but WORLD_SIZE is");
    expect_error(with(kByHand, {{"LOCAL_RANK", "1"}}),
                 "LOCAL_WORLD_SIZE is not set, but RANK, WORLD_SIZE, LOCAL_RANK are");
    expect_error(with(kByHand, {{"LOCAL_WORLD_SIZE", "4"}}), "LOCAL_RANK is not set, but");
    expect_error(
        {{"FSDPTRAIN_WORKER", "1 segment=5 flight=6 store=7 bound=0 processors=1"}},
        "WORLD_SIZE is not set, but FSDPTRAIN_WORKER is: set all variables of fsdptrain launch");
    expect_error({{"SLURM_STEP_ID", "0"}}, "SLURM_PROCID is not set, but SLURM_STEP_ID is");
    expect_error({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}},
                 "SLURM_STEP_NUM_TASKS is not set, but SLURM_STEP_ID, SLURM_PROCID are");
    expect_error({{"OMPI_COMM_WORLD_SIZE", "2"}},
                 "OMPI_COMM_WORLD_RANK is not set, but OMPI_COMM_WORLD_SIZE is");
    expect_error({{"PMI_RANK", "2"}}, "PMI_SIZE is not set, but PMI_RANK is");
  }

  TEST_CASE("values that are no numbers, or out of range, are named") {
    for (const char* value : {"-1", "1048576", "99999999999999999999", "two", "1x", " 1", "1 ",
                              "+1", "0x1", "1.0", "\n", "\x1b[31m"}) {
      CAPTURE(value);
      expect_error(with(kByHand, {{"RANK", value}}),
                   "RANK must be a whole number from 0 to 1048575, got \"");
    }
    expect_error(with(kByHand, {{"RANK", "\x1b[31m"}}), "got \"\\x1b[31m\"");
    for (const char* value : {"0", "-4", "1048577", "all"}) {
      expect_error(with(kByHand, {{"WORLD_SIZE", value}}),
                   "WORLD_SIZE must be a whole number from 1 to 1048576, got \"");
    }
    expect_error(with(kByHand, {{"RANK", std::string(1 << 20, '9')}}), "got \"9999");
  }

  TEST_CASE("values that contradict each other are named") {
    expect_error(with(kByHand, {{"RANK", "4"}}), "RANK must be below WORLD_SIZE, got 4 of 4");
    expect_error(with(kTorchrun, {{"LOCAL_RANK", "2"}}),
                 "LOCAL_RANK must be below LOCAL_WORLD_SIZE, got 2 of 2");
    expect_error(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}}),
                 "LOCAL_WORLD_SIZE must be at most WORLD_SIZE, got 5 of 4");
    expect_error(with(kSlurm, kPmi),
                 "SLURM_STEP_NUM_NODES say rank 3 of 6, but PMI_RANK, PMI_SIZE "
                 "say rank 1 of 5: unset those of one launcher");
    expect_error(with(kSlurm, {{"SLURM_PROCID", "6"}}),
                 "SLURM_PROCID must be below SLURM_STEP_NUM_TASKS, got 6 of 6");
    expect_error(with(kSlurm, {{"SLURM_LOCALID", "6"}}),
                 "SLURM_LOCALID must be below the tasks of its node, got 6 of 6");
  }

  TEST_CASE("what our launcher hands down is read whole or refused") {
    const std::string whole = "1 segment=5 flight=6 store=7 bound=0 processors=2";
    CHECK(to_text(parse_worker_spec(whole)) == whole);
    for (const std::string& text :
         {"2" + whole.substr(1), std::string("1"), std::string("1 "), std::string("garbage \x07"),
          whole.substr(0, whole.size() - 1), whole.substr(0, whole.rfind(' ')), whole + " more=1",
          std::string("1 flight=6 segment=5 store=7 bound=0 processors=2"),
          std::string("1 segment=5  flight=6 store=7 bound=0 processors=2"),
          std::string("1 segment=-5 flight=6 store=7 bound=0 processors=2"),
          std::string("1 segment=5 flight=99999999999 store=7 bound=0 processors=2"),
          std::string("1 segment=5 flight=6 store=7 bound=2 processors=2"),
          std::string("1 segment=5 flight=6 store=7 bound=0 processors=0")}) {
      CAPTURE(text);
      expect_error(with(kOwn, {{"FSDPTRAIN_WORKER", text}}), "FSDPTRAIN_WORKER: ");
    }
    expect_error(
        with(kOwn, {{"FSDPTRAIN_WORKER", "2 x"}}),
        "the version in front must be 1: launcher and program must be of one version, got \"2 x\"");
  }
}

}  // namespace fsdptrain::comm
