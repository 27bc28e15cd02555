#include "tools/bench/comm_rank.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "comm/clock.h"
#include "comm/gloo/store_rendezvous.h"
#include "comm/shm/connect.h"
#include "comm/world.h"
#include "kernels/combine.h"
#include "runtime/base/error.h"
#include "runtime/base/rank_context.h"
#include "runtime/tensor/views.h"
#include "tools/bench/comm_store.h"
#include "tools/bench/library_gather.h"

namespace fsdptrain::tools {
namespace {

constexpr std::int64_t kElement = sizeof(float);

std::int64_t now() {
  return comm::monotonic_clock().now().count();
}

// How often the system has taken the processor from this thread.
std::int64_t num_preemptions() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  const bool is_bound = ::sched_setaffinity(0, sizeof(cores), &cores) == 0;
  check<IoError>(is_bound, "bench comm: a rank cannot stay on processor {}: {}", core,
                 std::strerror(errno));
}

// An operation and its floor in the memory of one rank.
class CommRank {
 public:
  CommRank(comm::World& world, LibraryGather* library, std::int64_t max_nbytes)
      : world_(world),
        library_(library),
        launch_(current_context().launch(Device::cpu())),
        allocated_(world.group().allocate({max_nbytes / kElement * world.size()}, DType::Float32)) {
    // Memory that was never written takes several times as long.
    std::ranges::fill(allocated_.mutable_values<float>(), 1.0F);
  }

  std::vector<CommTimes> run(const CommTask& task) {
    const std::int64_t numel = task.nbytes / kElement;
    const Tensor all = views::narrow(memory_of(task.memory), 0, 0, numel * world_.size());
    const bool gathers = task.op == CommOp::AllGather || task.op == CommOp::LibraryAllGather;
    if (gathers) {
      mark(part_of(all, numel));
    }
    if (task.has_floor && !floor_to_.defined()) {
      const Shape shape{allocated_.numel() / world_.size() * (world_.size() - 1)};
      floor_from_ = Tensor::full(shape, 1);
      floor_to_ = Tensor::full(shape, 1);
    }
    std::vector<CommTimes> times(static_cast<std::size_t>(task.repeats));
    for (CommTimes& time : times) {
      if (task.has_floor) {
        const Timing floor = timed([&] { run_floor(task.op, numel); });
        time.floor_begin = floor.begin;
        time.floor_end = floor.end;
        time.floor_was_preempted = floor.was_preempted;
      }
      const Timing timing = timed([&] { run_operation(task.op, all, numel); });
      time.begin = timing.begin;
      time.end = timing.end;
      time.was_preempted = timing.was_preempted;
    }
    if (gathers) {
      check_marks(all);
    }
    return times;
  }

 private:
  // All ranks need the same at the same time: none is made for tasks that do without.
  const Tensor& memory_of(CommMemory memory) {
    if (memory == CommMemory::Allocated) {
      return allocated_;
    }
    if (!plain_.defined()) {
      plain_ = Tensor::full({allocated_.numel()}, 1);
    }
    return plain_;
  }

  void meet() { issue(comm::barrier()); }
  void issue(const comm::Operation& operation) { world_.group().issue(operation).wait(); }

  struct Timing {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool was_preempted = false;
  };

  template <class Fn>
  Timing timed(const Fn& fn) {
    meet();
    const std::int64_t preemptions = num_preemptions();
    const std::int64_t begin = now();
    fn();
    const std::int64_t end = now();
    return {begin, end, num_preemptions() != preemptions};
  }

  void run_operation(CommOp op, const Tensor& all, std::int64_t numel) {
    // The mean, as of gradients; it keeps the numbers small over many rounds.
    const comm::Reduction mean{.op = comm::ReduceOp::Avg};
    switch (op) {
      case CommOp::AllGather:
        return issue(comm::all_gather(all, part_of(all, numel)));
      case CommOp::ReduceScatter:
        return issue(comm::reduce_scatter(part_of(all, numel), all, mean));
      case CommOp::AllReduce:
        return issue(comm::all_reduce(views::narrow(all, 0, 0, numel), mean));
      case CommOp::Broadcast:
        return issue(comm::broadcast(views::narrow(all, 0, 0, numel), 0));
      case CommOp::Barrier:
        for (int i = 0; i < kBarriers; ++i) {
          meet();
        }
        return;
      case CommOp::LibraryAllGather:
        check(library_ != nullptr, "bench comm: these ranks are not on gloo");
        return library_->all_gather(all);
    }
  }

  Tensor part_of(const Tensor& all, std::int64_t numel) const {
    return views::narrow(all, 0, numel * world_.rank(), numel);
  }

  void run_floor(CommOp op, std::int64_t numel) {
    if (op == CommOp::AllGather) {
      std::memcpy(floor_to_.mutable_bytes().data(), floor_from_.bytes().data(),
                  static_cast<std::size_t>(numel * kElement * (world_.size() - 1)));
    } else if (op == CommOp::ReduceScatter) {
      // Into the first of as many parts as there are ranks.
      std::vector<const void*> parts{floor_to_.bytes().data()};
      for (int rank = 1; rank < world_.size(); ++rank) {
        parts.push_back(floor_from_.bytes().data() + numel * kElement * (rank - 1));
      }
      kernels::combine(launch_, {floor_to_.mutable_bytes().data(), DType::Float32},
                       {parts, DType::Float32, numel}, {.scale = 1.0 / world_.size()});
    }
  }

  // What is gathered can be told by its ends.
  void mark(const Tensor& own) const {
    const auto values = own.mutable_values<float>();
    values.front() = values.back() = static_cast<float>(world_.rank() + 1);
  }
  void check_marks(const Tensor& all) const {
    const auto values = all.values<float>();
    const std::size_t numel = values.size() / static_cast<std::size_t>(world_.size());
    for (int rank = 0; rank < world_.size(); ++rank) {
      const auto part = values.subspan(static_cast<std::size_t>(rank) * numel, numel);
      check(part.front() == static_cast<float>(rank + 1) && part.back() == part.front(),
            "bench comm: rank {} gathered {} to {} from rank {}", world_.rank(), part.front(),
            part.back(), rank);
    }
  }

  comm::World& world_;
  LibraryGather* library_;
  Launch launch_;
  Tensor allocated_;
  Tensor plain_;
  Tensor floor_from_;
  Tensor floor_to_;
};

void serve(comm::World& world, LibraryGather* library, const CommRankOptions& options) {
  CommRank rank(world, library, options.max_nbytes);
  for (CommTask task; receive_all(options.socket, &task, sizeof(task));) {
    const std::vector<CommTimes> times = rank.run(task);
    if (!send_all(options.socket, times.data(), times.size() * sizeof(CommTimes))) {
      return;
    }
  }
}

void serve_on(comm::Links links, LibraryGather* library, const CommRankOptions& options) {
  comm::World world(std::move(links), {});
  try {
    serve(world, library, options);
  } catch (const std::exception& error) {
    world.fail(error.what());
    throw;
  }
}

// While ranks meet they do not look at their socket, whose end would tell them that the benchmark
// is gone; it may be gone by now.
void end_with(int parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  check<IoError>(::getppid() == parent,
                 "bench comm: process {}, which started this rank, has ended", parent);
}

comm::store::Secret ask_for_token(int socket) {
  const char ready = 0;
  std::array<char, comm::store::Secret::kBytes> bytes{};
  check<IoError>(send_all(socket, &ready, 1) && receive_all(socket, bytes.data(), bytes.size()),
                 "bench comm: a rank is given no token of the store");
  return comm::store::Secret::from_bytes({bytes.data(), bytes.size()});
}

}  // namespace

std::string_view name_of(CommOp op) {
  switch (op) {
    case CommOp::AllGather:
      return "all_gather";
    case CommOp::ReduceScatter:
      return "reduce_scatter";
    case CommOp::AllReduce:
      return "all_reduce";
    case CommOp::Broadcast:
      return "broadcast";
    case CommOp::Barrier:
      return "barrier";
    case CommOp::LibraryAllGather:
      return "library_all_gather";
  }
  fail("name_of: {} is no CommOp", static_cast<int>(op));
}

std::string_view name_of(CommMemory memory) {
  return memory == CommMemory::Allocated ? "allocated" : "plain";
}

std::uint64_t comm_arena_bytes(int num_ranks, std::int64_t max_nbytes) {
  return size_class(static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(max_nbytes));
}

void serve_comm_rank(const CommRankOptions& options) {
  end_with(options.parent);
  if (options.core >= 0) {
    stay_on(options.core);
  }
  if (options.segment >= 0) {
    serve_on(comm::connect_shm(std::make_shared<const comm::Segment>(options.segment), options.rank,
                               options.spins),
             nullptr, options);
    return;
  }
  const auto store = join_comm_store(options.store, ask_for_token(options.socket), options.rank,
                                     options.num_ranks);
  const comm::Network network{.address = {.host = "127.0.0.1", .interface = {}},
                              .rendezvous = comm::store_rendezvous(*store, kCommPatience),
                              .timeout = kCommPatience};
  LibraryGather library(network, options.rank, options.num_ranks);
  comm::Links links = comm::connect_gloo(network, options.rank, options.num_ranks);
  store->close(kCommPatience);
  serve_on(std::move(links), &library, options);
}

bool send_all(int socket, const void* data, std::size_t nbytes) {
  const auto* bytes = static_cast<const std::byte*>(data);
  while (nbytes > 0) {
    const ssize_t count = ::send(socket, bytes, nbytes, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    bytes += count;
    nbytes -= static_cast<std::size_t>(count);
  }
  return true;
}

bool receive_all(int socket, void* data, std::size_t nbytes) {
  auto* bytes = static_cast<std::byte*>(data);
  while (nbytes > 0) {
    const ssize_t count = ::recv(socket, bytes, nbytes, 0);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    bytes += count;
    nbytes -= static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace fsdptrain::tools
