#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/shm/segment.h"
#include "comm/store/server_loop.h"
#include "tools/launch/keeper.h"
#include "tools/launch/options.h"
#include "tools/launch/rank.h"
#include "tools/launch/supervisor.h"

namespace fsdptrain::tools {

// The processes of a job on this host, and what they have in common: shared memory, a store, their
// flight rings. Nothing of it has a name in a file system. Whatever still runs at the end is
// killed.
class LaunchedRanks {
 public:
  struct Options {
    const LaunchOptions& launch;
    std::string job_id;
    // Where logs go; empty: nowhere. It is there.
    std::filesystem::path folder;
  };

  // Starts all. PathError if a log cannot be made, IoError where the system refuses. The console
  // outlives the ranks.
  LaunchedRanks(const Options& options, Console& console);
  LaunchedRanks(const LaunchedRanks&) = delete;
  LaunchedRanks& operator=(const LaunchedRanks&) = delete;
  ~LaunchedRanks();

  int size() const { return static_cast<int>(ranks_.size()); }
  LaunchedRank& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }

  // If its process has ended: it is waited for.
  std::optional<RankExit> take_end(LaunchedRank& rank);
  bool has_joined(int rank) const;
  // What the ranks have told each other.
  std::optional<RankFailure> reported() const;
  // Tells the ranks, wherever they wait.
  void tell(const RankFailure& failure);
  // To its process; SIGKILL, to all that it has started, too.
  void send(int rank, int signal);
  // Whether anything is left of the process groups of ranks that have ended. Members that have
  // ended are waited for.
  bool has_left_overs();
  // Waits for all children that have ended but ranks, which take_end() takes; starts another keeper
  // where it has ended, and says so.
  void reap();
  // When the ranks have ended: to all that come of them, in whatever group or session; false where
  // there is surely nobody. With 0, nobody gets a signal.
  bool send_left_overs(int signal) const;

 private:
  LaunchedRanks(const std::string& job_id, Console& console);
  void replace_keeper(const ProcessEnd& end);
  // Whether the group of a rank that has ended has members. Members that have ended hold its number
  // until they are waited for, which happens here, just before it asks: later the number may be
  // that of others, and a group that is gone is never asked for again.
  void check_group(LaunchedRank& rank);

  Console& console_;
  // What came of this process before any rank: of the shell that became the launcher.
  std::set<pid_t> not_of_job_;
  Keeper keeper_;
  int num_keepers_ = 1;
  std::unique_ptr<comm::Segment> segment_;
  std::vector<std::unique_ptr<LaunchedRank>> ranks_;
  std::optional<comm::store::ServerThread> store_;
};

}  // namespace fsdptrain::tools
