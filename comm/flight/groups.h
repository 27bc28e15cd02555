#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/flight/hang_report.h"
#include "comm/flight/reader.h"
#include "comm/flight/record.h"
#include "comm/tag_names.h"

// The records of all ranks, sorted by group: what a hang report is made from. Points into the
// rings.
namespace fsdptrain::comm {

struct FlightRank {
  const FlightSnapshot* ring = nullptr;
  // The first operation that it waits in or gave up in. Null: none.
  const FlightRecord* current = nullptr;
};

// Where the members of a group stand with its front.
struct FlightStanding {
  // In it, or given up in it.
  std::vector<int> waiting;
  std::vector<int> only_posted;
  std::vector<int> done;
  std::vector<int> late;
  // Members whose ring has lost what would tell.
  std::vector<int> unknown;
};

// A collective about which ranks disagree: those whose records agree together, the most first.
struct FlightMismatch {
  std::uint64_t sequence = 0;
  std::vector<std::vector<int>> parties;
  // Whether the first is more than half.
  bool has_majority = false;
};

struct GroupRecords {
  std::uint64_t group = 0;
  std::string name;
  std::uint32_t size = 0;
  std::set<int> members;
  // Collectives by sequence number, of each rank that has any.
  std::map<int, std::map<std::uint64_t, const FlightRecord*>> collectives;
  // The first collective that a rank waits in or gave up in, where there is one.
  const FlightRecord* front = nullptr;
  FlightStanding standing;
  // The first that the rings still have.
  std::optional<FlightMismatch> mismatch;
  // Sends and receives that a rank waits in, or gave up in.
  std::vector<std::pair<int, const FlightRecord*>> open_transfers;

  // Somebody waits, has given up, or disagrees.
  bool has_trouble() const {
    return front != nullptr || mismatch.has_value() || !open_transfers.empty();
  }
};

struct FlightGroups {
  int world_size = 0;
  std::uint32_t attempt = 0;
  // Rings of earlier attempts.
  std::size_t num_left_out = 0;
  std::map<int, FlightRank> ranks;
  // By name, then by number.
  std::vector<GroupRecords> groups;
  // Of all rings: ranks call the groups of parameters alike.
  TagNames names;

  bool has_ring(int rank) const { return ranks.contains(rank); }
  // Whether a process has begun to write it.
  bool is_written(int rank) const { return has_ring(rank) && ranks.at(rank).ring->header.pid != 0; }
  const FlightRecord* current_of(int rank) const {
    return has_ring(rank) ? ranks.at(rank).current : nullptr;
  }
};

FlightGroups sort_by_group(std::span<const FlightSnapshot> rings,
                           std::span<const FlightGroup> known);

// How records of one collective differ between ranks: "op, count"; empty: not at all.
std::string differences(const FlightRecord& a, const FlightRecord& b);

}  // namespace fsdptrain::comm
