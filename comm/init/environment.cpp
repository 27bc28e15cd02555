#include "comm/init/environment.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <span>
#include <utility>
#include <vector>

#include "comm/ranks.h"
#include "runtime/base/error.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::comm {
namespace {

// The port of torchrun where nobody gives one.
constexpr const char* kDefaultPort = "29500";

// The variables of one launcher: which of them were read, and their values.
class Variables {
 public:
  Variables(const Lookup& lookup, Launcher launcher) : lookup_(lookup), launcher_(launcher) {}

  std::optional<std::string> text(std::string_view name) {
    std::optional<std::string> value = lookup_(name);
    if (!value || value->empty()) {
      return std::nullopt;
    }
    used_.emplace_back(name);
    return value;
  }

  std::optional<int> number(std::string_view name, int min, int max) {
    const std::optional<std::string> value = text(name);
    if (!value) {
      return std::nullopt;
    }
    const std::optional<int> number = parse_number(*value);
    check<ConfigError>(number && *number >= min && *number <= max,
                       "{} must be a whole number from {} to {}, got {}", name, min, max,
                       in_quotes(value->substr(0, 100)));
    return number;
  }

  int needed(std::string_view name, int min, int max) {
    const std::optional<int> value = number(name, min, max);
    check<ConfigError>(value.has_value(),
                       "{} is not set, but {} {}: set all variables of {}, or unset them for one "
                       "rank",
                       name, fmt::join(used_, ", "), used_.size() == 1 ? "is" : "are",
                       name_of(launcher_));
    return *value;
  }

  // "RANK, WORLD_SIZE"
  std::string used() const { return fmt::format("{}", fmt::join(used_, ", ")); }

 private:
  const Lookup& lookup_;
  Launcher launcher_;
  std::vector<std::string> used_;
};

bool is_set(const Lookup& lookup, std::string_view name) {
  return !lookup(name).value_or("").empty();
}

// What the variables of rank and size are called.
struct Names {
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
};

void check_below(std::string_view rank_name, int rank, std::string_view size_name, int size) {
  check<ConfigError>(rank < size, "{} must be below {}, got {} of {}", rank_name, size_name, rank,
                     size);
}

// Without the local ones, all ranks are on this host.
Membership read_ranks(Variables& variables, Launcher launcher, const Names& names) {
  Membership membership{.launcher = launcher};
  const std::optional<int> rank = variables.number(names.rank, 0, kMaxWorldSize - 1);
  membership.size = variables.needed(names.size, 1, kMaxWorldSize);
  membership.rank = rank ? *rank : variables.needed(names.rank, 0, kMaxWorldSize - 1);
  check_below(names.rank, membership.rank, names.size, membership.size);
  const std::optional<int> local_rank = variables.number(names.local_rank, 0, kMaxWorldSize - 1);
  const std::optional<int> local_size = variables.number(names.local_size, 1, kMaxWorldSize);
  if (!local_rank && !local_size) {
    membership.local_rank = membership.rank;
    membership.local_size = membership.size;
    return membership;
  }
  membership.local_size =
      local_size ? *local_size : variables.needed(names.local_size, 1, kMaxWorldSize);
  membership.local_rank =
      local_rank ? *local_rank : variables.needed(names.local_rank, 0, kMaxWorldSize - 1);
  check_below(names.local_rank, membership.local_rank, names.local_size, membership.local_size);
  check<ConfigError>(membership.local_size <= membership.size,
                     "{} must be at most {}, got {} of {}", names.local_size, names.size,
                     membership.local_size, membership.size);
  return membership;
}

constexpr Names kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

Membership read_torchrun(const Lookup& lookup, Launcher launcher) {
  Variables variables(lookup, launcher);
  const std::optional<std::string> worker =
      launcher == Launcher::Own ? variables.text(kWorkerVariable) : std::nullopt;
  Membership membership = read_ranks(variables, launcher, kTorchrun);
  membership.variables = variables.used();
  if (worker) {
    membership.worker = parse_worker_spec(*worker);
  }
  membership.job_id = lookup("TORCHELASTIC_RUN_ID").value_or("");
  membership.port = lookup("MASTER_PORT").value_or("");
  if (membership.port.empty()) {
    membership.port = kDefaultPort;
  }
  return membership;
}

// How many tasks the node has, of "4", "2(x3)" or "4,2(x2)".
std::optional<int> tasks_of_node(std::string_view text, int node) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t times = part.find("(x");
    const std::optional<int> tasks = parse_number(part.substr(0, times));
    const std::optional<int> num_nodes =
        times == std::string_view::npos ? std::optional(1)
        : part.ends_with(')') ? parse_number(part.substr(times + 2, part.size() - times - 3))
                              : std::nullopt;
    if (!tasks || !num_nodes) {
      return std::nullopt;
    }
    if (node < *num_nodes) {
      return tasks;
    }
    node -= *num_nodes;
  }
  return std::nullopt;
}

int slurm_local_size(Variables& variables, int size) {
  const std::optional<int> num_nodes = variables.number("SLURM_STEP_NUM_NODES", 1, kMaxWorldSize);
  if (num_nodes.value_or(1) == 1) {
    return size;
  }
  const int node = variables.needed("SLURM_NODEID", 0, *num_nodes - 1);
  const std::string tasks = variables.text("SLURM_STEP_TASKS_PER_NODE").value_or("");
  const std::optional<int> local_size = tasks_of_node(tasks, node);
  check<ConfigError>(local_size && *local_size >= 1 && *local_size <= size,
                     "SLURM_STEP_TASKS_PER_NODE must say how many of {} tasks node {} has, got {}",
                     size, node, in_quotes(tasks.substr(0, 100)));
  return *local_size;
}

Membership read_slurm(const Lookup& lookup) {
  Variables variables(lookup, Launcher::Slurm);
  Membership membership{.launcher = Launcher::Slurm};
  membership.job_id =
      lookup("SLURM_JOB_ID").value_or("") + "." + variables.text("SLURM_STEP_ID").value_or("");
  membership.rank = variables.needed("SLURM_PROCID", 0, kMaxWorldSize - 1);
  membership.size = variables.needed("SLURM_STEP_NUM_TASKS", 1, kMaxWorldSize);
  check_below("SLURM_PROCID", membership.rank, "SLURM_STEP_NUM_TASKS", membership.size);
  membership.local_rank = variables.needed("SLURM_LOCALID", 0, kMaxWorldSize - 1);
  membership.local_size = slurm_local_size(variables, membership.size);
  check_below("SLURM_LOCALID", membership.local_rank, "the tasks of its node",
              membership.local_size);
  membership.variables = variables.used();
  return membership;
}

Membership read_mpi(const Lookup& lookup, Launcher launcher, const Names& names,
                    std::string_view job_name) {
  Variables variables(lookup, launcher);
  Membership membership = read_ranks(variables, launcher, names);
  membership.variables = variables.used();
  membership.job_id = lookup(job_name).value_or("");
  return membership;
}

constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

// All that have set anything, the innermost first.
std::vector<Membership> read_foreign(const Lookup& lookup) {
  std::vector<Membership> found;
  const auto is_any_set = [&](const Names& names) {
    return is_set(lookup, names.rank) || is_set(lookup, names.size);
  };
  if (is_any_set(kTorchrun)) {
    found.push_back(read_torchrun(lookup, Launcher::Torchrun));
  }
  const bool has_mpi = is_any_set(kOpenMpi) || is_any_set(kPmi);
  // A batch script has the number of a task, too, but is no rank: it has no step. A step of one
  // task is the shell in which another launcher was started.
  const bool is_shell =
      (has_mpi || !found.empty()) && lookup("SLURM_STEP_NUM_TASKS") == std::string("1");
  if (is_set(lookup, "SLURM_STEP_ID") && !is_shell) {
    found.push_back(read_slurm(lookup));
  }
  if (is_any_set(kOpenMpi)) {
    found.push_back(read_mpi(lookup, Launcher::OpenMpi, kOpenMpi, "PMIX_NAMESPACE"));
  }
  if (is_any_set(kPmi)) {
    found.push_back(read_mpi(lookup, Launcher::Pmi, kPmi, "PMI_JOBID"));
  }
  return found;
}

}  // namespace

std::string_view name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::None:
      return "no launcher";
    case Launcher::Own:
      return "fsdptrain launch";
    case Launcher::Torchrun:
      return "torchrun";
    case Launcher::Slurm:
      return "Slurm";
    case Launcher::OpenMpi:
      return "Open MPI";
    case Launcher::Pmi:
      return "PMI";
  }
  return "an unknown launcher";
}

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Membership read_environment(const Lookup& lookup) {
  if (is_set(lookup, kWorkerVariable)) {
    return read_torchrun(lookup, Launcher::Own);
  }
  std::vector<Membership> found = read_foreign(lookup);
  if (found.empty()) {
    return {};
  }
  // The agent of a torchrun on each node may be a task of another launcher; by hand, nobody sets
  // this.
  const bool has_agent =
      found.front().launcher == Launcher::Torchrun && is_set(lookup, "TORCHELASTIC_RUN_ID");
  for (const Membership& other : std::span(found).subspan(1)) {
    const bool is_agent = has_agent && other.local_size == 1;
    const Membership& first = found.front();
    check<ConfigError>(
        is_agent || (other.rank == first.rank && other.size == first.size),
        "{} say rank {} of {}, but {} say rank {} of {}: unset those of one launcher",
        first.variables, first.rank, first.size, other.variables, other.rank, other.size);
  }
  return found.front();
}

std::string to_string(const Membership& membership) {
  if (membership.launcher == Launcher::None) {
    return "one rank";
  }
  return fmt::format("rank {} of {}, by {} ({})", membership.rank, membership.size,
                     name_of(membership.launcher), membership.variables);
}

}  // namespace fsdptrain::comm
