#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// What the ranks of `bench comm` are asked to do, and what one of them does.
namespace fsdptrain::tools {

enum class CommOp : std::uint8_t {
  AllGather,
  ReduceScatter,
  AllReduce,
  Broadcast,
  Barrier,
  // gloo's own; of ranks on gloo alone.
  LibraryAllGather,
};
std::string_view name_of(CommOp op);

enum class CommMemory : std::uint8_t {
  // From ProcessGroup::allocate().
  Allocated,
  // Of the process alone.
  Plain,
};
std::string_view name_of(CommMemory memory);

// One kind of work, in place as fully sharded training runs it: a rank's shard lies at its place in
// what it gathers, and so does its part of what it reduces. Plain bytes, as CommTimes: both ends
// are the same program.
struct CommTask {
  CommOp op = CommOp::Barrier;
  CommMemory memory = CommMemory::Allocated;
  // Before each repeat: a memcpy of the bytes that a rank receives, or a sum of as many parts, in
  // memory of its own. For an all_gather or a reduce_scatter.
  bool has_floor = false;
  std::int32_t repeats = 1;
  // Of a shard, or of all that is reduced or broadcast.
  std::int64_t nbytes = 0;
};

// When one rank began and ended, in ns of the clock that all processes have in common.
struct CommTimes {
  std::int64_t floor_begin = 0;
  std::int64_t floor_end = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // Whether the system gave the processor to others meanwhile.
  bool floor_was_preempted = false;
  bool was_preempted = false;
};

// Barriers that are timed as one.
inline constexpr int kBarriers = 100;

struct CommRankOptions {
  int rank = 0;
  int num_ranks = 1;
  // comm::Segment::create()'s; -1 for ranks that reach each other by gloo over loopback.
  int segment = -1;
  // Of the CommStore where those find each other. They send a byte on `socket`, and its token comes
  // first.
  std::string store = {};
  // Where tasks arrive and times go: both ends are stream sockets.
  int socket = -1;
  // The process that started this one, which ends with it.
  int parent = -1;
  // The processor that the rank stays on; -1 for any.
  int core = -1;
  bool spins = true;
  // The largest CommTask::nbytes.
  std::int64_t max_nbytes = 0;
};

// Shared memory that a rank needs.
std::uint64_t comm_arena_bytes(int num_ranks, std::int64_t max_nbytes);

// Does tasks until the socket ends. The rank context of this thread has one thread. Error if what
// was gathered is wrong.
void serve_comm_rank(const CommRankOptions& options);

// Exactly these bytes; false where the other end is gone.
bool send_all(int socket, const void* data, std::size_t nbytes);
bool receive_all(int socket, void* data, std::size_t nbytes);

}  // namespace fsdptrain::tools
