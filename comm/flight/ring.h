#pragma once

#include <cstdint>
#include <string_view>

#include "comm/clock.h"
#include "comm/flight/memory.h"
#include "comm/flight/record.h"

namespace fsdptrain::comm {

// The flight recorder of one rank: its last operations, in shared memory that outlives the process
// however it ends (docs/comm.md has the bytes). One thread, the one that issues; nothing blocks,
// nothing allocates. Memory that has been written before, by this process or one before it, is
// written on.
//
// Readers in other processes notice what changes while they read, and a writer that was killed in
// the middle of a record.
class FlightRing {
 public:
  // `clock` outlives the ring.
  explicit FlightRing(FlightMemory memory, const Clock& clock = monotonic_clock());

  // Notes an operation as posted now and returns its number. It replaces the oldest where the
  // ring is full.
  std::uint64_t begin(FlightRecord record);
  // These change nothing once the record has been replaced, nor in a record that has come further
  // already: an abort may fail what is complete. MisuseError for a number that begin() never gave.
  void started(std::uint64_t number);
  void completed(std::uint64_t number);
  void failed(std::uint64_t number);
  // The rank has waited for `rank` for so long; the longest wait of a record is kept. Called when a
  // wait turns out long, and again at its end, it says who is waited for while that goes on.
  void waited(std::uint64_t number, int rank, Nanoseconds duration);

  // What readers call this group of parameters in tags: at most 255 printable characters of it.
  // Where the memory has no room left, it stays a number.
  void name_group(std::uint32_t root, std::uint32_t group, std::string_view name);

  const FlightMemory& memory() const { return memory_; }
  // Of all records ever begun.
  std::uint64_t num_written() const { return next_; }

 private:
  // Whether the record can still be changed.
  bool is_there(std::uint64_t number) const;
  void move_to(std::uint64_t number, FlightState state);

  FlightMemory memory_;
  const Clock* clock_;
  std::uint64_t next_ = 0;
};

}  // namespace fsdptrain::comm
