#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "comm/clock.h"

// What a rank notes about one operation between ranks. Enumerations are the numbers of whoever
// issues the operation; comm/flight/text.h has words for them.
namespace fsdptrain::comm {

enum class FlightState : std::uint8_t {
  Posted = 1,     // issued; nobody waits for it yet
  Started = 2,    // the rank is in it
  Completed = 3,  // its outputs are there
  Failed = 4,     // given up: a deadline, an abort, an error
};

// Which collective of the schedule it is.
struct FlightTag {
  std::uint32_t root = 0;
  std::uint32_t group = 0;
  std::uint32_t invocation = 0;
  std::uint8_t direction = 0;

  friend bool operator==(const FlightTag&, const FlightTag&) = default;
};

// For an operation without one.
inline constexpr std::uint8_t kNoReduceOp = 255;
inline constexpr std::uint8_t kNoDType = 255;
inline constexpr int kNoRank = -1;
inline constexpr std::uint16_t kNoDeadline = 65535;

// A deadline as records carry it: in whole seconds, rounded up; kNoDeadline from 65535 s on.
std::uint16_t deadline_seconds(Nanoseconds timeout);

struct FlightRecord {
  static constexpr std::size_t kMaxGroupName = 15;

  // Longer names lose their end.
  void set_group_name(std::string_view name);
  std::string_view group_name_text() const;

  // Of the rank's operations, from 0. The ring sets it, and what follows up to `completed`.
  std::uint64_t number = 0;
  FlightState state = FlightState::Posted;
  // Of the rank's Clock; 0: not yet.
  Nanoseconds posted{0};
  Nanoseconds started{0};
  // Or failed.
  Nanoseconds completed{0};

  std::uint8_t op = 0;
  std::uint8_t reduce_op = kNoReduceOp;
  std::uint8_t dtype = kNoDType;
  // A send or a receive: its sequence numbers are not those of the group's collectives.
  bool is_point_to_point = false;
  // Each rank has a count of its own, as in all-to-all: not compared.
  bool counts_vary = false;
  // How long the rank waits in it, from `started` on, before it gives up by itself.
  std::uint16_t deadline = kNoDeadline;
  // The root, or the peer of a send or a receive: a rank of the world.
  int root = kNoRank;
  // Equal on all members, different for any two groups of a run, also if one replaces the other:
  // its sequence numbers begin anew.
  std::uint64_t group = 0;
  std::uint32_t group_size = 0;
  std::array<char, kMaxGroupName + 1> group_name{};
  std::uint64_t sequence = 0;
  FlightTag tag;
  // In elements.
  std::uint64_t count = 0;
  std::uint64_t nbytes = 0;
  // The longest that this rank waited for one other, and for which: a rank of the world.
  Nanoseconds longest_wait{0};
  int straggler = kNoRank;
  // Of the caller's place in the source; 0: not known.
  std::uint32_t call_site = 0;
};

}  // namespace fsdptrain::comm
