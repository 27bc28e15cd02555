#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "comm/init/worker_spec.h"

// What a process is in its job, from what its launcher put in the environment.
namespace fsdptrain::comm {

enum class Launcher : std::uint8_t {
  // Nobody: one rank.
  None,
  // fsdptrain launch, which hands descriptors down.
  Own,
  // RANK and WORLD_SIZE: torchrun, or whoever sets them by hand.
  Torchrun,
  Slurm,
  OpenMpi,
  // Hydra, and others that speak the process management interface of MPICH.
  Pmi,
};
std::string_view name_of(Launcher launcher);

struct Membership {
  Launcher launcher = Launcher::None;
  int rank = 0;
  int size = 1;
  // Among the ranks of this host.
  int local_rank = 0;
  int local_size = 1;
  // Tells jobs of one user on one host apart, together with the port; as the launcher wrote it.
  std::string job_id = {};
  std::string port = {};
  // The launcher's own only.
  std::optional<WorkerSpec> worker = {};
  // The variables that say so: "RANK, WORLD_SIZE".
  std::string variables = {};
};

// The value of an environment variable; nothing where it is not set. Values that are empty count as
// not set.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;
// Of this process.
std::optional<std::string> environment_variable(std::string_view name);

// Our own launcher comes first, then RANK and WORLD_SIZE, then Slurm (a step, not the batch script
// around it), Open MPI and PMI: the innermost launcher counts. ConfigError, naming the variables,
// where a set is not whole, a value is no number in its range, or values contradict each other:
// also those of two launchers, except where one plainly started the other: ours, a torchrun that
// runs once on each node, or any within a step of Slurm that has one task.
Membership read_environment(const Lookup& lookup);

// "rank 0 of 4, by torchrun (RANK, WORLD_SIZE)"
std::string to_string(const Membership& membership);

}  // namespace fsdptrain::comm
