#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nccl.h>

#include "tests/fakecuda/fakecuda.h"
#include "tests/fakecuda/nccl/collective.h"
#include "tests/fakecuda/nccl/fakenccl.h"

namespace fsdptrain::fakecuda {

struct Clique;

// Calls between the outermost ncclGroupStart() and ncclGroupEnd() of a thread, which take effect
// together.
struct Job {
  std::vector<Request> requests;
  bool is_launched = false;
};

// What several ranks asked for by one ncclCommSplit().
struct Split {
  struct Wish {
    ncclComm* comm = nullptr;
    int color = 0;
    int key = 0;
    std::string name;
    ncclComm* result = nullptr;
  };
  std::vector<Wish> wishes;
};

}  // namespace fsdptrain::fakecuda

// One rank's handle of a communicator.
struct ncclComm {
  std::shared_ptr<fsdptrain::fakecuda::Clique> clique;
  int rank = 0;
  int device = 0;
  // Whether the last call still takes effect.
  bool is_initialising = true;
  std::shared_ptr<fsdptrain::fakecuda::Job> job = {};
  std::shared_ptr<fsdptrain::fakecuda::Split> split = {};
  ncclComm_t* split_to = nullptr;
  bool is_finalizing = false;
  // What went wrong, and its text.
  ncclResult_t error = ncclSuccess;
  std::string last_error = {};
  // What goes wrong once nothing is about to be launched.
  ncclResult_t late_error = ncclSuccess;
  // Destroyed or aborted.
  bool is_gone = false;
  std::uint64_t num_collectives = 0;
  // Sends to and receives from each rank.
  std::map<int, std::uint64_t> num_sends = {};
  std::map<int, std::uint64_t> num_recvs = {};
  std::uint64_t num_splits = 0;
  std::vector<std::shared_ptr<fsdptrain::fakecuda::Rendezvous>> under_way = {};
  std::set<void*> registrations = {};
  std::set<void*> windows = {};
  // Asked for so far; all members ask for the n-th one before any goes on.
  std::uint64_t num_window_calls = 0;
  std::map<int, fsdptrain::fakecuda::ReduceOp> premuls = {};
  int next_premul = ncclNumOps;
};

namespace fsdptrain::fakecuda {

// A communicator as all of its ranks share it.
struct Clique {
  int number = 0;
  std::string name = {};
  // By rank; null until it has come.
  std::vector<ncclComm*> members = {};
  std::map<std::uint64_t, Meeting> collectives = {};
  // Of the n-th transfer from one rank to another.
  std::map<std::tuple<int, int, std::uint64_t>, Meeting> transfers = {};
  std::map<std::uint64_t, std::shared_ptr<Split>> splits = {};

  int size() const { return static_cast<int>(members.size()); }
  bool is_complete() const;
};

// Everything NCCL knows in a session. Under `mutex`, which nobody holds while he calls CUDA.
struct NcclState {
  std::uint64_t session_number = 0;
  std::mutex mutex;
  std::uint64_t num_ids = 0;
  std::map<std::uint64_t, std::shared_ptr<Clique>> by_id = {};
  std::vector<std::shared_ptr<Clique>> cliques = {};
  // Handles are never given out twice.
  std::vector<std::unique_ptr<ncclComm>> comms = {};
  std::vector<NcclFault> faults = {};
  // Of what has no communicator.
  std::string last_error = {};
  // What CUDA gave for memory that NCCL gave out.
  std::map<void*, void*> blocks = {};
  // Collectives that each device has launched, by number of the communicator.
  std::map<int, std::map<int, std::uint64_t>> launched = {};
};

// Of the session under way.
NcclState& nccl_state();
// Null for what is no communicator, or no longer one, which is reported.
ncclComm* find_comm(ncclComm_t comm, const char* call);
// Makes a communicator with room for so many ranks.
std::shared_ptr<Clique> make_clique(NcclState& state, int size, const char* name);
ncclComm* add_member(NcclState& state, const std::shared_ptr<Clique>& clique, int rank, int device);

// Whether all of them are done. Inside of a call of CUDA.
bool is_flushed(const std::vector<std::shared_ptr<Rendezvous>>& under_way);

// Takes a call of a collective or a transfer, to be launched at the end of its group.
ncclResult_t take(Request request);
// Lets calls that were taken take effect.
void launch(Job& job);

// A communicator of the device was aborted; after the outermost ncclGroupEnd(), what still runs
// there is reported.
void note_abort(int device);

void report_nccl(ReportKind kind, const std::string& text);
ncclResult_t refuse(ncclComm* comm, ncclResult_t result, std::string text);

}  // namespace fsdptrain::fakecuda
