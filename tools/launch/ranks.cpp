#include "tools/launch/ranks.h"

#include <algorithm>
#include <arpa/inet.h>
#include <csignal>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "comm/clock.h"
#include "comm/link/frame.h"
#include "comm/store/socket_pairs.h"
#include "runtime/base/error.h"
#include "runtime/base/quoted.h"
#include "tools/launch/cores.h"
#include "tools/launch/processes.h"
#include "tools/launch/worker_environment.h"

namespace fsdptrain::tools {
namespace {

constexpr int kReapMilliseconds = 1000;
// Somebody ends them on purpose.
constexpr int kMostKeepers = 16;

// Raises the limit where it may be raised. Ranks inherit it.
void make_room_for_files(int num_ranks, bool has_logs) {
  // Its ring, its end, the pipe that says why it does not start, two pipes of output, its socket.
  constexpr int kOfRank = 6;
  constexpr int kLogsOfRank = 2;
  constexpr int kOfLauncher = 64;
  const int each = kOfRank + (has_logs ? kLogsOfRank : 0);
  const auto needed = static_cast<rlim_t>(each * num_ranks + kOfLauncher);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
    return;
  }
  const rlim_t before = std::exchange(limit.rlim_cur, needed);
  check<IoError>(limit.rlim_max >= needed && ::setrlimit(RLIMIT_NOFILE, &limit) == 0,
                 "launch: {} ranks need {} open files, and the limit is {}; raise it (ulimit -n)",
                 num_ranks, needed, before);
}

// For programs that open a port there. It is free now; nothing can keep it so.
int free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t nbytes = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool is_known = socket.is_open() && ::bind(socket.number(), generic, nbytes) == 0 &&
                        ::getsockname(socket.number(), generic, &nbytes) == 0;
  // A host without loopback has no use for it either.
  return is_known ? ntohs(address.sin_port) : 29500;
}

std::set<pid_t> descendants_of_this() {
  const auto is_child = [](const RunningProcess& process) { return process.parent == ::getpid(); };
  const std::vector<pid_t> found = with_descendants(running_processes(), is_child);
  return {found.begin(), found.end()};
}

}  // namespace

LaunchedRanks::LaunchedRanks(const std::string& job_id, Console& console)
    : console_(console),
      not_of_job_(descendants_of_this()),
      keeper_(fmt::format("{}={}", kJobVariable, job_id)) {}

// Delegates, so that the destructor ends what was started where a later rank cannot be.
LaunchedRanks::LaunchedRanks(const Options& options, Console& console)
    : LaunchedRanks(options.job_id, console) {
  const int num_ranks = options.launch.num_ranks;
  const int master_port = options.launch.master_port > 0 ? options.launch.master_port : free_port();
  const std::vector<int> processors = usable_processors();
  make_room_for_files(num_ranks, !options.folder.empty());
  const comm::store::Secret token = comm::store::Secret::random();
  const Descriptor segment(comm::Segment::create({num_ranks, comm::arena_bytes(num_ranks)}));
  segment_ = std::make_unique<comm::Segment>(segment.number());
  std::vector<comm::store::SocketPair> pairs;
  std::vector<Descriptor> servers;
  for (int rank = 0; rank < num_ranks; ++rank) {
    pairs.push_back(comm::store::make_socket_pair(token));
    servers.push_back(std::move(pairs.back().server));
  }
  store_.emplace(comm::store::listen_at(std::move(servers)),
                 comm::store::ServerOptions{.job_id = options.job_id,
                                            .token = token,
                                            .world_size = num_ranks,
                                            .reports_ends = false});
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks_.push_back(start_rank({.launch = options.launch,
                                 .job_id = options.job_id,
                                 .folder = options.folder,
                                 .number = rank,
                                 .master_port = master_port,
                                 .processors = processors,
                                 .segment = segment.number(),
                                 .store = pairs[static_cast<std::size_t>(rank)].rank.number()},
                                console_));
    // The only other owner is the rank.
    pairs[static_cast<std::size_t>(rank)].rank.close();
    keeper_.add(ranks_.back()->process.id);
  }
}

LaunchedRanks::~LaunchedRanks() {
  for (const auto& rank : ranks_) {
    send(rank->number, SIGKILL);
  }
  for (const auto& rank : ranks_) {
    // One that waits in the system for a device may never end.
    pollfd ended{.fd = rank->process.end.number(), .events = POLLIN, .revents = 0};
    if (!rank->has_ended && ::poll(&ended, 1, kReapMilliseconds) > 0) {
      ::waitpid(rank->process.id, nullptr, 0);
    }
  }
  const comm::Deadline deadline(comm::monotonic_clock(),
                                std::chrono::milliseconds(kReapMilliseconds));
  while (send_left_overs(SIGKILL) && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::optional<RankExit> LaunchedRanks::take_end(LaunchedRank& rank) {
  const std::optional<ProcessEnd> end =
      rank.has_ended ? std::nullopt : fsdptrain::take_end(rank.process.id);
  if (!end) {
    return std::nullopt;
  }
  rank.has_ended = true;
  rank.process.end.close();
  check_group(rank);
  using comm::store::Attendance;
  const Attendance attendance = store_->attendance()[static_cast<std::size_t>(rank.number)];
  const auto presence = segment_->training().rank(rank.number).presence.load();
  return RankExit{.rank = rank.number,
                  .value = end->value,
                  .is_signal = end->is_signal,
                  .has_joined = has_joined(rank.number),
                  .is_lost = attendance == Attendance::Lost || attendance == Attendance::Here,
                  .was_inside = presence == comm::RankPresence::Here};
}

bool LaunchedRanks::has_joined(int rank) const {
  return segment_->training().rank(rank).presence.load() != comm::RankPresence::Absent;
}

std::optional<RankFailure> LaunchedRanks::reported() const {
  for (const comm::Board& board : {segment_->training(), segment_->control()}) {
    const int rank = board.first_failed().load() - 1;
    if (rank >= 0 && rank < size()) {
      return RankFailure{
          rank, fmt::format("failed: {}", printable(comm::text_in(board.failure(rank).text)))};
    }
  }
  return std::nullopt;
}

void LaunchedRanks::tell(const RankFailure& failure) {
  // Ranks put "rank R failed: " in front.
  constexpr std::string_view kFailed = "failed: ";
  const std::string text = failure.text.starts_with(kFailed) ? failure.text.substr(kFailed.size())
                                                             : "it " + failure.text;
  segment_->report_end(failure.rank, text);
  store_->report_failure(failure.rank, text);
}

void LaunchedRanks::send(int rank, int signal) {
  const LaunchedRank& to = *ranks_[static_cast<std::size_t>(rank)];
  if (to.has_ended) {
    return;
  }
  if (signal == SIGKILL) {
    ::kill(-to.process.id, SIGKILL);
  }
  // After SIGKILL to its group, only for one that has left it.
  ::kill(to.process.id, signal);
}

bool LaunchedRanks::has_left_overs() {
  bool is_any_left = false;
  for (const auto& rank : ranks_) {
    if (rank->has_ended && rank->has_group) {
      check_group(*rank);
      is_any_left = is_any_left || rank->has_group;
    }
  }
  return is_any_left;
}

void LaunchedRanks::check_group(LaunchedRank& rank) {
  const pid_t group = rank.process.id;
  while (::waitpid(-group, nullptr, WNOHANG) > 0) {
  }
  rank.has_group = ::kill(-group, 0) == 0;
  if (!rank.has_group) {
    keeper_.remove(group);
  }
}

void LaunchedRanks::reap() {
  bool is_any = false;
  siginfo_t end{};
  // Of a rank, take_end() has to know how it ended: the next turn.
  const auto is_rank = [&](const auto& rank) {
    return !rank->has_ended && rank->process.id == end.si_pid;
  };
  while (::waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0 &&
         std::ranges::none_of(ranks_, is_rank)) {
    const std::optional<ProcessEnd> how = fsdptrain::take_end(end.si_pid);
    is_any = true;
    if (how && end.si_pid == keeper_.id()) {
      replace_keeper(*how);
    }
    end = {};
  }
  if (is_any) {
    has_left_overs();
  }
}

void LaunchedRanks::replace_keeper(const ProcessEnd& end) {
  const std::string text = fmt::format("the keeper (process {}) {}", keeper_.id(), to_string(end));
  std::string why = "they are ended again and again";
  if (num_keepers_ < kMostKeepers) {
    try {
      keeper_.start_again();
      if (num_keepers_++ == 1) {
        console_.note(text + "; another has its place");
      }
      return;
    } catch (const IoError& error) {
      why = error.what();
    }
  }
  console_.note(
      fmt::format("{}, and there is no other: {}; what the ranks have started would stay "
                  "if the launcher were killed",
                  text, why));
}

bool LaunchedRanks::send_left_overs(int signal) const {
  try {
    bool is_any = false;
    for (const pid_t process : descendants_of_this()) {
      if (process != keeper_.id() && !not_of_job_.contains(process)) {
        is_any = true;
        ::kill(process, signal);
      }
    }
    return is_any;
  } catch (const IoError&) {
    // Not known for now: whoever asks looks again.
    return true;
  }
}

}  // namespace fsdptrain::tools
