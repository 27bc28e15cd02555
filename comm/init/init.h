#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/init/debug_break.h"
#include "comm/init/environment.h"
#include "comm/init/meeting_folder.h"
#include "comm/init/where_signal.h"
#include "comm/shm/segment.h"
#include "comm/store/client.h"
#include "comm/store/server_loop.h"
#include "comm/threads/thread_boards.h"
#include "comm/world.h"
#include "runtime/base/rank_context.h"

// How a process becomes a rank of its job, whoever started it.
namespace fsdptrain::comm {

struct JobOptions {
  World::Options world = {};
  // Compute threads of this rank; 0: as many as each rank of the host can have a processor for.
  int threads = 0;
  // How long ranks wait for each other to come.
  Nanoseconds join_timeout = std::chrono::minutes(10);
  // When a rank that waits for others says so on standard error for the first time, under another
  // launcher than ours. Rank 0 names those that have not come, the others name rank 0.
  Nanoseconds notice_after = std::chrono::seconds(5);
  // Called again and again while this rank waits for others to come: what it throws ends the wait.
  std::function<void()> check_stop = {};
};

// Compute threads of a rank: `wanted`, or, where that is 0, its share of the processors that this
// process may use, at least one. A rank that our launcher has bound to processors of its own has
// all of those.
int threads_of_rank(int wanted, const Membership& membership);
// Whether it has done so. What another launcher has done is not known: no.
bool is_bound(const Membership& membership);
// Whether a rank may wait in a loop, because the host has a processor for each of so many compute
// threads of each rank.
bool may_spin(const Membership& membership, int num_threads);

// One rank of a job, from the moment it has met the others: its rank context, bound to the thread
// that made it, and the world of all ranks. SIGUSR2 prints where it is.
//
// A rank that ends without close() has failed, and ends the others.
class Job {
 public:
  // Blocks until all ranks are here. ConfigError for several hosts, for descriptors that a wrapper
  // has closed, and for FSDPTRAIN_BREAK_RANK that is none; TimeoutError if ranks do not come;
  // further as World. Rank 0 says on standard error who has started the job, if anybody has.
  Job(const Membership& membership, const JobOptions& options,
      const Lookup& lookup = environment_variable);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  const Membership& membership() const { return membership_; }
  World& world() { return *world_; }

  // Before each step: DebugBreak::at().
  void break_for_debugger(std::int64_t step) { debug_break_.at(step); }
  DebugBreak& debug_break() { return debug_break_; }

  // Makes all ranks end with "rank R failed: reason". From any thread.
  void fail(std::string_view reason) noexcept;
  // Says goodbye: that this rank ends is no failure. Once, when its work is done; nothing
  // collective follows. Under another launcher than ours, it returns when rank 0 has come here,
  // too: such a launcher may kill all others as soon as one has ended.
  void close();

 private:
  void join_own();
  void join_others(const Lookup& lookup);
  // When all are there.
  Links serve_others(const std::filesystem::path& folder);
  Links come_to_rank_0(const std::filesystem::path& folder);
  // Who has not come, as far as rank 0 sees.
  std::vector<int> missing_ranks();
  void say_who_is_missing();
  void say(std::string_view text) const;
  // Until the keys are all there.
  void wait_for(const std::vector<std::string>& keys, const Deadline& deadline);
  void open_store(const std::filesystem::path& folder, Meet meet, const Deadline& deadline);
  void wait_for_rank_0();
  // By the shared memory.
  Links links() const;
  void make_world(Links links, std::optional<FlightMemory> flight);

  Membership membership_;
  JobOptions options_;
  DebugBreak debug_break_;
  WhereSignal where_;
  RankContext context_;
  ContextGuard bound_;
  // Of all ranks. Null for one rank that nobody has started as such.
  std::unique_ptr<Store> store_;
  // Where rank 0 serves the store itself; it ends first, so that it reports no end of its own rank.
  std::unique_ptr<store::ServerThread> server_;
  // Of one rank alone.
  std::unique_ptr<ThreadBoards> boards_;
  std::shared_ptr<const Segment> segment_;
  std::unique_ptr<World> world_;
  std::unique_ptr<WatchedRing> watched_;
};

// By the environment of this process.
inline Job init_from_environment(const JobOptions& options = {}) {
  return {read_environment(environment_variable), options};
}

}  // namespace fsdptrain::comm
