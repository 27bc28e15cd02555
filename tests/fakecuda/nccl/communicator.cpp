#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "runtime/base/error.h"
#include "tests/fakecuda/call.h"
#include "tests/fakecuda/nccl/state.h"

// The life of communicators.
namespace fsdptrain::fakecuda {
namespace {

// Only what every member knows can be an id.
std::uint64_t number_of(const ncclUniqueId& id) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  return number;
}

int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

void fail_all_members(Clique& clique, const std::string& text) {
  for (ncclComm* member : clique.members) {
    if (member != nullptr) {
      member->error = ncclInvalidUsage;
      member->last_error = text;
    }
  }
}

// Children by color, ranks by key and then by their rank in the parent.
void carry_out_split(NcclState& state, Split& split, const Clique& parent) {
  std::vector<Split::Wish*> wishes;
  for (Split::Wish& wish : split.wishes) {
    wishes.push_back(&wish);
  }
  std::ranges::sort(wishes, {}, [](const Split::Wish* wish) {
    return std::tuple(wish->color, wish->key, wish->comm->rank);
  });
  for (auto begin = wishes.begin(); begin != wishes.end();) {
    const auto end = std::find_if(begin, wishes.end(), [&](const Split::Wish* wish) {
      return wish->color != (*begin)->color;
    });
    if ((*begin)->color != NCCL_SPLIT_NOCOLOR) {
      const std::string& name = (*begin)->name.empty() ? parent.name : (*begin)->name;
      const auto clique = make_clique(state, static_cast<int>(end - begin), name.c_str());
      for (auto wish = begin; wish != end; ++wish) {
        (*wish)->result =
            add_member(state, clique, static_cast<int>(wish - begin), (*wish)->comm->device);
      }
    }
    begin = end;
  }
}

void cancel_all(const std::vector<std::shared_ptr<Rendezvous>>& all) {
  cuda_query("ncclCommAbort", [&](Machine&, Call&) {
    for (const std::shared_ptr<Rendezvous>& rendezvous : all) {
      rendezvous->cancel();
    }
    return cudaSuccess;
  });
}

bool is_split_planned_to_fail(const NcclState& state, ncclComm& comm) {
  const auto mine = std::ranges::find(comm.split->wishes, &comm, &Split::Wish::comm);
  for (const NcclFault& fault : state.faults) {
    if (fault.is_of_split && fault.communicator == mine->name && fault.rank == comm.rank) {
      comm.error = fault.result;
      comm.last_error = "a failure that the test planned";
      if (mine->result != nullptr) {
        mine->result->is_gone = true;
      }
      return true;
    }
  }
  return false;
}

// What the communicator is busy with, under the lock; the job that takes effect now.
ncclResult_t look_at(ncclComm& comm, std::shared_ptr<Job>& to_launch) {
  if (comm.late_error != ncclSuccess && !comm.job) {
    comm.error = comm.late_error;
  }
  if (comm.error != ncclSuccess) {
    return comm.error;
  }
  if (comm.is_initialising) {
    comm.is_initialising = !comm.clique->is_complete();
    return comm.is_initialising ? ncclInProgress : ncclSuccess;
  }
  if (comm.split) {
    Split& split = *comm.split;
    if (is_split_planned_to_fail(nccl_state(), comm)) {
      return comm.error;
    }
    if (static_cast<int>(split.wishes.size()) < comm.clique->size()) {
      return ncclInProgress;
    }
    const auto mine = std::ranges::find(split.wishes, &comm, &Split::Wish::comm);
    *comm.split_to = mine->result;
    comm.split.reset();
    return ncclSuccess;
  }
  if (std::ranges::any_of(comm.clique->members, [&](const ncclComm* member) {
        return member->num_window_calls < comm.num_window_calls;
      })) {
    return ncclInProgress;
  }
  to_launch = std::exchange(comm.job, nullptr);
  return ncclSuccess;
}

ncclResult_t async_error(ncclComm& comm) {
  NcclState& state = nccl_state();
  std::shared_ptr<Job> to_launch;
  ncclResult_t result = ncclSuccess;
  bool is_finalizing = false;
  {
    const std::lock_guard lock(state.mutex);
    result = look_at(comm, to_launch);
    is_finalizing = comm.is_finalizing;
  }
  if (to_launch && !to_launch->is_launched) {
    launch(*to_launch);
    return comm.error;
  }
  if (is_finalizing && result == ncclSuccess) {
    bool flushed = false;
    cuda_query("ncclCommGetAsyncError", [&](Machine&, Call&) {
      flushed = is_flushed(comm.under_way);
      return cudaSuccess;
    });
    return flushed ? ncclSuccess : ncclInProgress;
  }
  return result;
}

}  // namespace

bool is_flushed(const std::vector<std::shared_ptr<Rendezvous>>& under_way) {
  return std::ranges::all_of(
      under_way, [](const std::shared_ptr<Rendezvous>& rendezvous) { return rendezvous->done(); });
}

bool Clique::is_complete() const {
  return std::ranges::none_of(members, [](const ncclComm* member) { return member == nullptr; });
}

NcclState& nccl_state() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): one per process, as NCCL.
  static std::unique_ptr<NcclState> current;
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): guards the one above.
  static std::mutex mutex;
  const std::shared_ptr<Machine> here = machine();
  const std::uint64_t session = here ? here->session_number : 0;
  const std::lock_guard lock(mutex);
  if (!current || current->session_number != session) {
    current = std::make_unique<NcclState>();
    current->session_number = session;
  }
  return *current;
}

void report_nccl(ReportKind kind, const std::string& text) {
  cuda_query("NCCL", [&](Machine& here, Call& call) {
    here.report(kind, text, call);
    return cudaSuccess;
  });
}

ncclResult_t refuse(ncclComm* comm, ncclResult_t result, std::string text) {
  if (comm != nullptr) {
    comm->last_error = std::move(text);
  }
  return result;
}

ncclComm* find_comm(ncclComm_t comm, const char* call) {
  NcclState& state = nccl_state();
  const std::lock_guard lock(state.mutex);
  const auto found = std::ranges::find_if(
      state.comms, [comm](const std::unique_ptr<ncclComm>& one) { return one.get() == comm; });
  if (found != state.comms.end() && !(*found)->is_gone) {
    return found->get();
  }
  report_nccl(ReportKind::InvalidUse,
              fmt::format("{} of a communicator that {}", call,
                          found == state.comms.end() ? "there never was" : "is gone"));
  return nullptr;
}

std::shared_ptr<Clique> make_clique(NcclState& state, int size, const char* name) {
  auto clique = std::make_shared<Clique>();
  clique->number = static_cast<int>(state.cliques.size());
  clique->name = name == nullptr ? fmt::format("communicator {}", clique->number)
                                 : fmt::format("communicator '{}'", name);
  clique->members.resize(static_cast<std::size_t>(size));
  state.cliques.push_back(clique);
  return clique;
}

ncclComm* add_member(NcclState& state, const std::shared_ptr<Clique>& clique, int rank,
                     int device) {
  auto comm = std::make_unique<ncclComm>();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = device;
  clique->members[static_cast<std::size_t>(rank)] = comm.get();
  state.comms.push_back(std::move(comm));
  return state.comms.back().get();
}

void plan_nccl_fault(NcclFault fault) {
  NcclState& state = nccl_state();
  const std::lock_guard lock(state.mutex);
  state.faults.push_back(std::move(fault));
}

NcclUse nccl_use() {
  NcclState& state = nccl_state();
  const std::lock_guard lock(state.mutex);
  NcclUse use;
  for (const std::unique_ptr<ncclComm>& comm : state.comms) {
    if (!comm->is_gone) {
      ++use.num_communicators;
      use.num_registrations += static_cast<int>(comm->registrations.size() + comm->windows.size());
      use.num_windows += static_cast<int>(comm->windows.size());
    }
  }
  return use;
}

}  // namespace fsdptrain::fakecuda

using fsdptrain::fakecuda::Clique;
using fsdptrain::fakecuda::find_comm;
using fsdptrain::fakecuda::nccl_state;
using fsdptrain::fakecuda::NcclState;
using fsdptrain::fakecuda::refuse;
using fsdptrain::fakecuda::Split;

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  NcclState& state = nccl_state();
  const std::lock_guard lock(state.mutex);
  *id = {};
  const std::uint64_t number = ++state.num_ids;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const int device = fsdptrain::fakecuda::current_device();
  NcclState& state = nccl_state();
  const std::lock_guard lock(state.mutex);
  *comm = nullptr;
  if (config == nullptr || config->blocking != 0 || rank < 0 || rank >= nranks) {
    return ncclInvalidArgument;
  }
  std::shared_ptr<Clique>& clique = state.by_id[fsdptrain::fakecuda::number_of(id)];
  if (!clique) {
    clique = fsdptrain::fakecuda::make_clique(state, nranks, config->commName);
  }
  if (clique->size() != nranks || clique->members[static_cast<std::size_t>(rank)] != nullptr) {
    return ncclInvalidArgument;
  }
  const bool has_duplicate = std::ranges::any_of(clique->members, [device](const ncclComm* member) {
    return member != nullptr && member->device == device;
  });
  *comm = fsdptrain::fakecuda::add_member(state, clique, rank, device);
  if (has_duplicate) {
    fsdptrain::fakecuda::fail_all_members(
        *clique, fmt::format("Duplicate GPU detected: two ranks are on device {}", device));
  }
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  ncclComm* const comm = find_comm(handle, "ncclCommSplit");
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  NcclState& state = nccl_state();
  const std::lock_guard lock(state.mutex);
  if (comm->is_initialising || comm->job || comm->split) {
    return refuse(comm, ncclInvalidArgument, "ncclCommSplit: the call before it has not settled");
  }
  std::shared_ptr<Split>& split = comm->clique->splits[comm->num_splits++];
  if (!split) {
    split = std::make_shared<Split>();
  }
  const char* const name = config == nullptr ? nullptr : config->commName;
  split->wishes.push_back(
      {.comm = comm, .color = color, .key = key, .name = name == nullptr ? "" : name});
  *newcomm = nullptr;
  comm->split = split;
  comm->split_to = newcomm;
  if (static_cast<int>(split->wishes.size()) == comm->clique->size()) {
    fsdptrain::fakecuda::carry_out_split(state, *split, *comm->clique);
  }
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  ncclComm* const comm = find_comm(handle, "ncclCommGetAsyncError");
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  *error = fsdptrain::fakecuda::async_error(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  ncclComm* const comm = find_comm(handle, "ncclCommFinalize");
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  comm->is_finalizing = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  ncclComm* const comm = find_comm(handle, "ncclCommDestroy");
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  comm->is_gone = true;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  ncclComm* const comm = find_comm(handle, "ncclCommAbort");
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  comm->is_gone = true;
  fsdptrain::fakecuda::cancel_all(comm->under_way);
  fsdptrain::fakecuda::note_abort(comm->device);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclNumResults:
      break;
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  return comm == nullptr ? nccl_state().last_error.c_str() : comm->last_error.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

}  // extern "C"
