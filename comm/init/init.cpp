#include "comm/init/init.h"

#include <algorithm>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

#include "comm/error.h"
#include "comm/fnv.h"
#include "comm/init/meeting_folder.h"
#include "comm/init/wait_notice.h"
#include "comm/link/headline.h"
#include "comm/ranks.h"
#include "comm/shm/connect.h"
#include "comm/store/socket_pairs.h"
#include "comm/store/unix_transport.h"
#include "comm/threads/thread_boards.h"
#include "runtime/base/processors.h"

namespace fsdptrain::comm {
namespace {

constexpr const char* kSegmentKey = "init/segment";
constexpr const char* kAllKey = "init/all";
constexpr const char* kDoneKey = "init/done";
// Of a rank that has come.
constexpr const char* kHere = "here";
constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(2);
constexpr Nanoseconds kBetweenStops = std::chrono::milliseconds(200);
// For the connection of a rank 0 that ends to end, too.
constexpr Nanoseconds kEndOfRank0 = std::chrono::seconds(1);
// Nobody waits longer for a goodbye than for a rank that does not answer.
constexpr Nanoseconds kFarewell = std::chrono::seconds(30);

void check_one_host(const Membership& membership) {
  check<ConfigError>(membership.local_size == membership.size,
                     "{} of {} ranks are on this host, by {} ({}): several hosts come later; start "
                     "all ranks on one",
                     membership.local_size, membership.size, name_of(membership.launcher),
                     membership.variables);
}

void check_inherited(int descriptor, std::string_view what) {
  check<ConfigError>(::fcntl(descriptor, F_GETFD) >= 0,
                     "FSDPTRAIN_WORKER: descriptor {}, the {}, is not open: a program between "
                     "fsdptrain launch and this one has closed it; let it pass descriptors on",
                     descriptor, what);
}

std::string key_of(int rank, std::string_view what) {
  return fmt::format("rank/{}/{}", rank, what);
}

std::vector<std::string> keys_of_others(int size, std::string_view what) {
  std::vector<std::string> keys;
  for (int rank = 1; rank < size; ++rank) {
    keys.push_back(key_of(rank, what));
  }
  return keys;
}

// What ranks that meet in this folder call their job to each other.
std::string job_name(const std::filesystem::path& folder) {
  Fnv hash;
  hash.add(folder.filename().native());
  return fmt::format("{:016x}", hash.value());
}

int num_online_processors() {
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

RankContext::Options context_options(const Membership& membership, const JobOptions& options) {
  // Our launcher puts the rank in front of each line by itself.
  const bool is_named = membership.size > 1 && membership.launcher != Launcher::Own;
  return {.threads = threads_of_rank(options.threads, membership),
          .log_prefix = is_named ? fmt::format("[rank {}] ", membership.rank) : ""};
}

}  // namespace

int threads_of_rank(int wanted, const Membership& membership) {
  if (wanted > 0) {
    return wanted;
  }
  const int usable = num_processors();
  return is_bound(membership) ? usable : std::max(usable / membership.local_size, 1);
}

bool is_bound(const Membership& membership) {
  return membership.worker && membership.worker->is_bound;
}

bool may_spin(const Membership& membership, int num_threads) {
  // Another launcher may have bound this rank: what it may use is not what all have together.
  const int num_shared =
      membership.worker ? membership.worker->num_processors : num_online_processors();
  return membership.local_size * num_threads <= num_shared;
}

Job::Job(const Membership& membership, const JobOptions& options, const Lookup& lookup)
    : membership_(membership),
      options_(options),
      debug_break_(read_break_point(lookup, membership.size), membership.rank),
      context_(context_options(membership, options)),
      bound_(context_) {
  check_one_host(membership_);
  if (debug_break_.is_set()) {
    options_.world.timeout = Nanoseconds::max();
  }
  if (membership_.launcher == Launcher::Own) {
    join_own();
  } else if (membership_.size > 1) {
    join_others(lookup);
  } else {
    boards_ = std::make_unique<ThreadBoards>(1);
    make_world(boards_->connect(0, true), std::nullopt);
  }
  // Who uses our launcher knows it.
  if (membership_.rank == 0 && membership_.launcher != Launcher::None &&
      membership_.launcher != Launcher::Own) {
    std::fputs(fmt::format("fsdptrain: {}\n", to_string(membership_)).c_str(), stderr);
  }
}

Job::~Job() {
  // Before the world whose ring it is.
  watched_.reset();
  world_.reset();
}

void Job::join_own() {
  const WorkerSpec inherited = membership_.worker.value_or(WorkerSpec{});
  check_inherited(inherited.segment, "memory of all ranks");
  check_inherited(inherited.flight, "flight ring");
  check_inherited(inherited.store, "connection to the launcher");
  store::InheritedConnection connection = store::inherit_connection(inherited.store);
  store_ = std::make_unique<Store>(std::move(connection.connection),
                                   Store::Options{.identity = {.job_id = membership_.job_id,
                                                               .rank = membership_.rank,
                                                               .world_size = membership_.size},
                                                  .token = connection.token},
                                   options_.join_timeout);
  segment_ = std::make_shared<const Segment>(inherited.segment);
  ::close(inherited.segment);
  make_world(links(), FlightMemory::adopt(inherited.flight, {.rank = membership_.rank,
                                                             .world_size = membership_.size}));
}

void Job::join_others(const Lookup& lookup) {
  const std::filesystem::path folder = meeting_folder(membership_, lookup);
  try {
    Links links = membership_.rank == 0 ? serve_others(folder) : come_to_rank_0(folder);
    make_world(std::move(links),
               FlightMemory::create({.rank = membership_.rank, .world_size = membership_.size}));
  } catch (Error& error) {
    error.add_context(to_string(membership_));
    throw;
  }
}

Links Job::serve_others(const std::filesystem::path& path) {
  const MeetingFolder folder(path);
  const Deadline deadline(monotonic_clock(), options_.join_timeout);
  const store::Secret token = store::Secret::random();
  server_ = std::make_unique<store::ServerThread>(
      folder.listen(),
      store::ServerOptions{
          .job_id = job_name(path), .token = token, .world_size = membership_.size});
  folder.publish(token);
  open_store(path, {token, store::connect_unix(path / "store", monotonic_clock(), deadline.left())},
             deadline);
  const Descriptor memory(Segment::create({membership_.size, arena_bytes(membership_.size)}));
  segment_ = std::make_shared<const Segment>(memory.number());
  Links mine = links();
  store_->set(kSegmentKey, fmt::format("/proc/{}/fd/{}", ::getpid(), memory.number()),
              deadline.left());
  wait_for(keys_of_others(membership_.size, kHere), deadline);
  store_->set(kAllKey, "", deadline.left());
  return mine;
}

Links Job::come_to_rank_0(const std::filesystem::path& path) {
  const Deadline deadline(monotonic_clock(), options_.join_timeout);
  WaitNotice notice(options_.notice_after);
  const auto look = [&] {
    if (options_.check_stop) {
      options_.check_stop();
    }
    if (notice.is_due()) {
      say(fmt::format("waiting for rank 0, which has not come to {}", path.native()));
    }
  };
  open_store(path, come_to(path, deadline, look), deadline);
  const Descriptor memory =
      open_memory_of_rank_0(store_->get(kSegmentKey, deadline.left()), [this] {
        try {
          // It is not there before this rank has come.
          store_->wait(std::vector<std::string>{kAllKey}, kEndOfRank0);
        } catch (const TimeoutError&) {
          // Rank 0 is there.
        }
      });
  segment_ = std::make_shared<const Segment>(memory.number());
  // Before the others go on: from here on they notice if this rank dies.
  Links mine = links();
  store_->set(key_of(membership_.rank, kHere), "", deadline.left());
  wait_for({kAllKey}, deadline);
  return mine;
}

std::vector<int> Job::missing_ranks() {
  std::vector<int> missing;
  const std::vector<store::Attendance> attendance = server_->attendance();
  for (std::size_t rank = 0; rank < attendance.size(); ++rank) {
    if (attendance[rank] != store::Attendance::Here) {
      missing.push_back(static_cast<int>(rank));
    }
  }
  return missing;
}

void Job::say(std::string_view text) const {
  std::fputs(fmt::format("fsdptrain: {}: {}\n", to_string(membership_), text).c_str(), stderr);
}

void Job::say_who_is_missing() {
  const std::vector<int> missing = missing_ranks();
  const int num_here = membership_.size - static_cast<int>(missing.size());
  if (!missing.empty()) {
    say(fmt::format("waiting for {}, {} of {} {} here", named_ranks(missing), num_here,
                    membership_.size, num_here == 1 ? "is" : "are"));
  }
}

void Job::wait_for(const std::vector<std::string>& keys, const Deadline& deadline) {
  WaitNotice notice(options_.notice_after);
  while (true) {
    try {
      store_->wait(keys, std::min(deadline.left(), kBetweenStops));
      return;
    } catch (const TimeoutError&) {
      check<TimeoutError>(
          !deadline.passed(), "not all ranks have come in {}{}", to_string(deadline.timeout()),
          server_ ? ", missing: " + named_ranks(missing_ranks()) : "; rank 0 says which");
    }
    if (options_.check_stop) {
      options_.check_stop();
    }
    if (server_ && notice.is_due()) {
      say_who_is_missing();
    }
  }
}

void Job::open_store(const std::filesystem::path& folder, Meet meet, const Deadline& deadline) {
  store_ = std::make_unique<Store>(std::move(meet.connection),
                                   Store::Options{.identity = {.job_id = job_name(folder),
                                                               .rank = membership_.rank,
                                                               .world_size = membership_.size},
                                                  .token = meet.token},
                                   deadline.left());
}

Links Job::links() const {
  const Segment::Shape& shape = segment_->shape();
  check<ConfigError>(shape.num_ranks == membership_.size,
                     "the memory of all ranks is for {} of them, but {} says {}", shape.num_ranks,
                     membership_.variables, membership_.size);
  const int num_threads = threads_of_rank(options_.threads, membership_);
  return connect_shm(segment_, membership_.rank, may_spin(membership_, num_threads));
}

void Job::make_world(Links links, std::optional<FlightMemory> flight) {
  world_ = std::make_unique<World>(std::move(links), options_.world, std::move(flight));
  watched_ = std::make_unique<WatchedRing>(where_, world_->flight_ring().memory().descriptor());
}

void Job::fail(std::string_view reason) noexcept {
  if (world_) {
    world_->fail(reason);
  }
  try {
    if (store_) {
      store_->report_failure(headline(reason), kFarewell);
    }
  } catch (const std::exception&) {
    // They hear of it from the end of this process.
  }
}

void Job::wait_for_rank_0() {
  try {
    store_->wait(std::vector<std::string>{kDoneKey}, options_.world.timeout);
  } catch (const TimeoutError&) {
    fsdptrain::fail<TimeoutError>("rank {}: rank 0 has not done its work in {}", membership_.rank,
                                  to_string(options_.world.timeout));
  }
}

void Job::close() {
  if (!store_) {
    return;
  }
  if (server_) {
    store_->set(kDoneKey, "", kFarewell);
  } else if (membership_.launcher != Launcher::Own) {
    wait_for_rank_0();
  }
  store_->close(kFarewell);
  if (!server_) {
    return;
  }
  // The store goes with this process: not before the others have left it.
  const Deadline deadline(monotonic_clock(), options_.world.timeout);
  while (std::ranges::count(server_->attendance(), store::Attendance::Here) > 0) {
    check<TimeoutError>(!deadline.passed(), "rank 0: the other ranks have not left their job in {}",
                        to_string(deadline.timeout()));
    std::this_thread::sleep_for(kBetweenLooks);
  }
  const std::optional<std::string> failure = server_->failure();
  check<PeerError>(!failure, "{}", failure.value_or(""));
}

}  // namespace fsdptrain::comm
