#include "comm/flight/groups.h"

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"

namespace fsdptrain::comm {
namespace {

// Ranks issue the operations of one kind in a group in one order.
using Lane = std::pair<std::uint64_t, bool>;

Lane lane_of(const FlightRecord& record) {
  return {record.group, record.is_point_to_point};
}

// The operations that a rank waits in or gave up in, in order. One that it gave up and went on
// behind is none.
std::vector<const FlightRecord*> open_records(const FlightSnapshot& ring) {
  std::map<Lane, std::uint64_t> last_completed;
  for (const FlightRecord& record : ring.records) {
    if (record.state == FlightState::Completed) {
      std::uint64_t& last = last_completed[lane_of(record)];
      last = std::max(last, record.sequence);
    }
  }
  std::vector<const FlightRecord*> open;
  for (const FlightRecord& record : ring.records) {
    const auto last = last_completed.find(lane_of(record));
    const bool went_on = last != last_completed.end() && last->second > record.sequence;
    if (record.state == FlightState::Started || (record.state == FlightState::Failed && !went_on)) {
      open.push_back(&record);
    }
  }
  return open;
}

void add_ring(FlightGroups& sorted, const FlightSnapshot& ring) {
  const FlightHeader& header = ring.header;
  const FlightIdentity& identity = header.identity;
  check<DataError>(sorted.ranks.empty() || identity.world_size == sorted.world_size,
                   "hang report: all rings must be of one world, got one of {} ranks and one of {} "
                   "ranks (rank {})",
                   sorted.world_size, identity.world_size, identity.rank);
  sorted.world_size = identity.world_size;
  const auto [place, is_new] = sorted.ranks.try_emplace(identity.rank, FlightRank{&ring, nullptr});
  const FlightHeader& first = place->second.ring->header;
  check<DataError>(is_new,
                   "hang report: a rank must have one ring, got two of rank {} in attempt {}: of "
                   "process {} on {} and of process {} on {}",
                   identity.rank, identity.attempt, first.pid, first.identity.host, header.pid,
                   identity.host);
}

void add_records(std::map<std::uint64_t, GroupRecords>& groups, int rank,
                 const FlightSnapshot& ring) {
  for (const FlightRecord& record : ring.records) {
    GroupRecords& group = groups[record.group];
    group.group = record.group;
    group.name = record.group_name_text();
    group.size = std::max(group.size, record.group_size);
    group.members.insert(rank);
    if (!record.is_point_to_point) {
      group.collectives[rank][record.sequence] = &record;
    }
  }
}

void add_open_records(std::map<std::uint64_t, GroupRecords>& groups, int rank,
                      std::span<const FlightRecord* const> open) {
  for (const FlightRecord* const record : open) {
    GroupRecords& group = groups.at(record->group);
    if (record->is_point_to_point) {
      group.open_transfers.emplace_back(rank, record);
    } else if (group.front == nullptr || record->sequence < group.front->sequence) {
      group.front = record;
    }
  }
}

void add_members(GroupRecords& group, int world_size, std::span<const FlightGroup> known) {
  for (const FlightGroup& one : known) {
    if (one.group == group.group) {
      group.members.insert(one.ranks.begin(), one.ranks.end());
    }
  }
  if (group.size == static_cast<std::uint32_t>(world_size)) {
    for (int rank = 0; rank < world_size; ++rank) {
      group.members.insert(rank);
    }
  }
}

std::vector<int>& place_of(int rank, const FlightGroups& all, const GroupRecords& group,
                           FlightStanding& standing) {
  const std::uint64_t sequence = group.front->sequence;
  const auto found = group.collectives.find(rank);
  if (found == group.collectives.end()) {
    const auto view = all.ranks.find(rank);
    const bool has_lost = view != all.ranks.end() && view->second.ring->num_lost > 0;
    return has_lost ? standing.unknown : standing.late;
  }
  const auto& records = found->second;
  if (records.rbegin()->first < sequence) {
    return standing.late;
  }
  const auto record = records.find(sequence);
  if (record == records.end()) {
    return standing.done;
  }
  switch (record->second->state) {
    case FlightState::Posted:
      return standing.only_posted;
    case FlightState::Completed:
      return standing.done;
    case FlightState::Started:
    case FlightState::Failed:
      break;
  }
  return standing.waiting;
}

std::vector<std::vector<int>> parties_at(const GroupRecords& group, std::uint64_t sequence) {
  std::vector<std::vector<int>> parties;
  for (const auto& [rank, records] : group.collectives) {
    const auto record = records.find(sequence);
    if (record == records.end()) {
      continue;
    }
    const FlightRecord& own = *record->second;
    const auto party = std::ranges::find_if(parties, [&](const std::vector<int>& others) {
      return differences(own, *group.collectives.at(others[0]).at(sequence)).empty();
    });
    (party == parties.end() ? parties.emplace_back() : *party).push_back(rank);
  }
  std::ranges::stable_sort(parties, std::ranges::greater{}, &std::vector<int>::size);
  return parties;
}

FlightStanding stand(const FlightGroups& all, const GroupRecords& group) {
  FlightStanding standing;
  for (const int rank : group.members) {
    place_of(rank, all, group, standing).push_back(rank);
  }
  return standing;
}

std::optional<FlightMismatch> find_mismatch(const GroupRecords& group) {
  std::set<std::uint64_t> sequences;
  for (const auto& [rank, records] : group.collectives) {
    for (const auto& [sequence, record] : records) {
      sequences.insert(sequence);
    }
  }
  for (const std::uint64_t sequence : sequences) {
    auto parties = parties_at(group, sequence);
    if (parties.size() > 1) {
      std::size_t num_ranks = 0;
      for (const auto& party : parties) {
        num_ranks += party.size();
      }
      const bool has_majority = parties[0].size() * 2 > num_ranks;
      return FlightMismatch{sequence, std::move(parties), has_majority};
    }
  }
  return std::nullopt;
}

}  // namespace

FlightGroups sort_by_group(std::span<const FlightSnapshot> rings,
                           std::span<const FlightGroup> known) {
  FlightGroups sorted;
  for (const FlightSnapshot& ring : rings) {
    sorted.attempt = std::max(sorted.attempt, ring.header.identity.attempt);
  }
  std::map<std::uint64_t, GroupRecords> groups;
  for (const FlightSnapshot& ring : rings) {
    if (ring.header.identity.attempt == sorted.attempt) {
      add_ring(sorted, ring);
      add_records(groups, ring.header.identity.rank, ring);
    } else {
      ++sorted.num_left_out;
    }
  }
  for (auto& [rank, view] : sorted.ranks) {
    const auto open = open_records(*view.ring);
    view.current = open.empty() ? nullptr : open[0];
    add_open_records(groups, rank, open);
    sorted.names.add(view.ring->names);
  }
  for (auto& [id, group] : groups) {
    add_members(group, sorted.world_size, known);
    group.mismatch = find_mismatch(group);
    if (group.front != nullptr) {
      group.standing = stand(sorted, group);
    }
    sorted.groups.push_back(std::move(group));
  }
  std::ranges::stable_sort(sorted.groups, {}, &GroupRecords::name);
  return sorted;
}

std::string differences(const FlightRecord& a, const FlightRecord& b) {
  std::string text;
  const auto compare = [&text](bool is_equal, const char* what) {
    if (!is_equal) {
      text += text.empty() ? what : std::string(", ") + what;
    }
  };
  compare(a.op == b.op, "op");
  compare(a.tag == b.tag, "tag");
  compare(a.dtype == b.dtype, "dtype");
  compare(a.count == b.count || (a.counts_vary && b.counts_vary), "count");
  compare(a.reduce_op == b.reduce_op, "reduce op");
  compare(a.root == b.root, "root");
  return text;
}

}  // namespace fsdptrain::comm
