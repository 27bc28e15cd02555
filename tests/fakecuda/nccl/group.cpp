#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "runtime/base/rank_context.h"
#include "tests/fakecuda/call.h"
#include "tests/fakecuda/nccl/state.h"

// How calls of NCCL become operations on streams.
namespace fsdptrain::fakecuda {
namespace {

struct ThreadGroup {
  int depth = 0;
  std::shared_ptr<Job> job;
  // Devices of the communicators that were aborted.
  std::set<int> aborted = {};
};

ThreadGroup& thread_group() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): as in NCCL, one per thread.
  static thread_local ThreadGroup group;
  return group;
}

bool is_transfer(Kind kind) {
  return kind == Kind::Send || kind == Kind::Recv;
}

// What of two calls does not fit, or nothing.
bool fit(const Request& a, const Request& b) {
  if (is_transfer(a.kind)) {
    return a.count == b.count && a.type == b.type;
  }
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op &&
         a.root == b.root;
}

Meeting make_meeting(const std::string& name, std::vector<std::string> participants, Isa isa) {
  Meeting meeting;
  meeting.requests = std::make_shared<Requests>(participants.size());
  meeting.rendezvous = std::make_shared<Rendezvous>(Rendezvous::Options{
      .name = name,
      .participants = std::move(participants),
      .run = [requests = meeting.requests, isa] { carry_out(*requests, isa); }});
  return meeting;
}

// Where a call is among all of one communicator.
struct Seat {
  Meeting* meeting = nullptr;
  std::size_t participant = 0;
  std::uint64_t number = 0;
};

Seat seat_of_transfer(ncclComm& comm, const Request& request, Isa isa) {
  const bool sends = request.kind == Kind::Send;
  const int from = sends ? comm.rank : request.root;
  const int to = sends ? request.root : comm.rank;
  const std::uint64_t number = sends ? comm.num_sends[to]++ : comm.num_recvs[from]++;
  auto& transfers = comm.clique->transfers;
  auto found = transfers.find({from, to, number});
  if (found == transfers.end()) {
    const std::string name = fmt::format("ncclSend and ncclRecv #{} from rank {} to rank {} of {}",
                                         number, from, to, comm.clique->name);
    found = transfers
                .emplace(std::tuple{from, to, number},
                         make_meeting(
                             name, {fmt::format("rank {}", from), fmt::format("rank {}", to)}, isa))
                .first;
  }
  return {&found->second, sends ? std::size_t{0} : std::size_t{1}, number};
}

Seat seat_of_collective(ncclComm& comm, const Request& request, Isa isa) {
  const std::uint64_t number = comm.num_collectives++;
  auto& collectives = comm.clique->collectives;
  auto found = collectives.find(number);
  if (found == collectives.end()) {
    std::vector<std::string> ranks;
    ranks.reserve(comm.clique->members.size());
    for (int rank = 0; rank < comm.clique->size(); ++rank) {
      ranks.push_back(fmt::format("rank {}", rank));
    }
    found = collectives
                .emplace(number, make_meeting(fmt::format("{} #{} of {}", name_of(request.kind),
                                                          number, comm.clique->name),
                                              std::move(ranks), isa))
                .first;
  }
  return {&found->second, static_cast<std::size_t>(comm.rank), number};
}

// The first communicator that two ranks have in common and that one of them used more often before.
std::string order_mismatch(NcclState& state, const ncclComm& comm, const Request& request,
                           const Meeting& meeting,
                           const std::map<int, std::uint64_t>& launched_before) {
  const ncclComm& first = *comm.clique->members[static_cast<std::size_t>(meeting.first)];
  const auto count_in = [](const std::map<int, std::uint64_t>& counts, int clique) {
    const auto found = counts.find(clique);
    return found == counts.end() ? 0 : found->second;
  };
  for (const std::shared_ptr<Clique>& other : state.cliques) {
    const auto has = [&](int device) {
      return std::ranges::any_of(other->members, [device](const ncclComm* member) {
        return member != nullptr && member->device == device;
      });
    };
    const std::uint64_t mine = count_in(launched_before, other->number);
    const std::uint64_t theirs = count_in(meeting.launched_before, other->number);
    if (mine != theirs && has(comm.device) && has(first.device)) {
      return fmt::format(
          "the order of two communicators: before {} #{} of {}, rank {} has launched {} "
          "collectives "
          "of {}, rank {} has launched {}",
          name_of(request.kind), comm.num_collectives - 1, comm.clique->name, meeting.first, theirs,
          other->name, comm.rank, mine);
    }
  }
  return "";
}

std::string call_mismatch(const ncclComm& comm, const Request& request, const Seat& seat) {
  const Requests& requests = *seat.meeting->requests;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] && i != seat.participant && !fit(*requests[i], request)) {
      const int other = is_transfer(request.kind) ? request.root : static_cast<int>(i);
      return fmt::format("#{} of {}: rank {} is in {}, rank {} in {}", seat.number,
                         comm.clique->name, other, to_string(*requests[i]), comm.rank,
                         to_string(request));
    }
  }
  return "";
}

// What several calls on one stream are together.
std::string name_of_all(const std::vector<Request>& requests) {
  return requests.size() == 1
             ? name_of(requests.front().kind)
             : fmt::format("group of {} {}", requests.size(), name_of(requests.front().kind));
}

bool is_planned_to_fail(NcclState& state, ncclComm& comm) {
  for (const NcclFault& fault : state.faults) {
    if (!fault.is_of_split && "communicator '" + fault.communicator + "'" == comm.clique->name &&
        fault.rank == comm.rank && comm.num_collectives >= fault.number) {
      (fault.is_late ? comm.late_error : comm.error) = fault.result;
      comm.last_error = "a failure that the test planned";
      return !fault.is_late;
    }
  }
  return false;
}

// One call's part of the operation on its stream; none if it fails or fits nothing.
std::optional<Part> part_of(NcclState& state, const Request& request,
                            const std::map<int, std::uint64_t>& launched_before,
                            std::vector<std::string>& mismatches,
                            std::vector<std::shared_ptr<Rendezvous>>& broken) {
  ncclComm& comm = *request.comm;
  if (comm.is_gone || is_planned_to_fail(state, comm)) {
    return std::nullopt;
  }
  const Isa isa = current_context().isa();
  const bool transfers = is_transfer(request.kind);
  const Seat seat =
      transfers ? seat_of_transfer(comm, request, isa) : seat_of_collective(comm, request, isa);
  Meeting& meeting = *seat.meeting;
  std::string wrong = call_mismatch(comm, request, seat);
  if (meeting.first < 0) {
    meeting.first = comm.rank;
    meeting.launched_before = launched_before;
  } else if (wrong.empty() && !transfers) {
    wrong = order_mismatch(state, comm, request, meeting, launched_before);
  }
  (*meeting.requests)[seat.participant] = request;
  if (!wrong.empty() && !meeting.is_broken) {
    meeting.is_broken = true;
    mismatches.push_back(std::move(wrong));
    broken.push_back(meeting.rendezvous);
  }
  comm.under_way.push_back(meeting.rendezvous);
  const int size = transfers ? 1 : comm.clique->size();
  return Part{.rendezvous = meeting.rendezvous,
              .participant = seat.participant,
              .reads = reads_of(request, comm.rank, size),
              .writes = writes_of(request, comm.rank, size)};
}

// Each abort of a group waits for all that runs on the device, but what the group aborts itself.
void check_aborts(const std::set<int>& devices) {
  std::vector<std::pair<std::string, std::vector<std::shared_ptr<Rendezvous>>>> others;
  {
    NcclState& state = nccl_state();
    const std::lock_guard lock(state.mutex);
    for (const std::unique_ptr<ncclComm>& comm : state.comms) {
      if (!comm->is_gone && devices.contains(comm->device)) {
        others.emplace_back(comm->clique->name, comm->under_way);
      }
    }
  }
  cuda_query("ncclCommAbort", [&](Machine&, Call&) {
    std::erase_if(others, [](const auto& other) { return is_flushed(other.second); });
    return cudaSuccess;
  });
  for (const auto& [name, under_way] : others) {
    report_nccl(ReportKind::InvalidUse,
                fmt::format("ncclCommAbort waits for what {} has under way on the same device: "
                            "abort them in one group",
                            name));
  }
}

}  // namespace

void note_abort(int device) {
  ThreadGroup& group = thread_group();
  group.aborted.insert(device);
  if (group.depth == 0) {
    check_aborts(std::exchange(group.aborted, {}));
  }
}

ncclResult_t take(Request request) {
  ncclComm* const comm = find_comm(request.comm, name_of(request.kind));
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  if (comm->is_initialising || comm->job || comm->split || comm->error != ncclSuccess) {
    return refuse(comm, ncclInvalidArgument,
                  fmt::format("{}: the call before it has not settled", name_of(request.kind)));
  }
  const int size = comm->clique->size();
  if (request.root >= size) {
    return refuse(comm, ncclInvalidArgument,
                  fmt::format("{}: there is no rank {}", name_of(request.kind), request.root));
  }
  if (const std::string wrong = misplaced(request, comm->rank, size); !wrong.empty()) {
    report_nccl(ReportKind::InvalidUse, wrong);
    return refuse(comm, ncclInvalidUsage, wrong);
  }
  if (device_of(request.stream) != comm->device) {
    return refuse(
        comm, ncclInvalidUsage,
        fmt::format("{}: the stream is not of device {}", name_of(request.kind), comm->device));
  }
  ThreadGroup& group = thread_group();
  const bool is_alone = group.depth == 0;
  if (is_alone) {
    ncclGroupStart();
  }
  group.job->requests.push_back(std::move(request));
  return is_alone ? ncclGroupEnd() : ncclSuccess;
}

void launch(Job& job) {
  job.is_launched = true;
  NcclState& state = nccl_state();
  std::map<cudaStream_t, std::pair<OpSpec, std::vector<Request>>> ops;
  std::vector<cudaStream_t> order;
  std::vector<std::string> mismatches;
  std::vector<std::shared_ptr<Rendezvous>> broken;
  {
    const std::lock_guard lock(state.mutex);
    std::map<int, std::map<int, std::uint64_t>> before = state.launched;
    for (const Request& request : job.requests) {
      const int device = request.comm->device;
      if (auto part = part_of(state, request, before[device], mismatches, broken)) {
        if (std::ranges::find(order, request.stream) == order.end()) {
          order.push_back(request.stream);
        }
        ops[request.stream].first.parts.push_back(std::move(*part));
        ops[request.stream].second.push_back(request);
      }
      if (!is_transfer(request.kind)) {
        ++state.launched[device][request.comm->clique->number];
      }
    }
  }
  for (const std::string& text : mismatches) {
    report_nccl(ReportKind::CollectiveMismatch, text);
  }
  cuda_query("ncclGroupEnd", [&](Machine&, Call&) {
    for (const std::shared_ptr<Rendezvous>& rendezvous : broken) {
      rendezvous->cancel();
    }
    return cudaSuccess;
  });
  for (cudaStream_t stream : order) {
    auto& [op, requests] = ops[stream];
    op.name = name_of_all(requests);
    if (const cudaError_t error = enqueue(stream, std::move(op)); error != cudaSuccess) {
      requests.front().comm->error = ncclUnhandledCudaError;
      requests.front().comm->last_error = cudaGetErrorString(error);
    }
  }
}

}  // namespace fsdptrain::fakecuda

extern "C" {

ncclResult_t ncclGroupStart() {
  auto& group = fsdptrain::fakecuda::thread_group();
  if (group.depth++ == 0) {
    group.job = std::make_shared<fsdptrain::fakecuda::Job>();
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  auto& group = fsdptrain::fakecuda::thread_group();
  if (group.depth == 0) {
    fsdptrain::fakecuda::report_nccl(fsdptrain::fakecuda::ReportKind::InvalidUse,
                                     "ncclGroupEnd without a ncclGroupStart");
    return ncclInvalidUsage;
  }
  if (--group.depth > 0) {
    return ncclSuccess;
  }
  if (!group.aborted.empty()) {
    fsdptrain::fakecuda::check_aborts(std::exchange(group.aborted, {}));
  }
  const auto job = std::move(group.job);
  if (job->requests.empty()) {
    return ncclSuccess;
  }
  // It takes effect while somebody asks about it: ncclCommGetAsyncError().
  for (const fsdptrain::fakecuda::Request& request : job->requests) {
    request.comm->job = job;
  }
  return ncclInProgress;
}

}  // extern "C"
