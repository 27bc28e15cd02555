#include "comm/flight/blame.h"

#include <fmt/format.h>
#include <span>
#include <utility>
#include <vector>

#include "comm/flight/text.h"
#include "comm/ranks.h"

namespace fsdptrain::comm {
namespace {

class Blaming {
 public:
  explicit Blaming(const FlightGroups& all) : all_(all) {}

  Blame take() {
    for (const GroupRecords& group : all_.groups) {
      if (group.mismatch) {
        blame_mismatch(group, *group.mismatch);
      } else if (group.front != nullptr) {
        blame_standing(group);
      }
      blame_transfers(group);
    }
    return std::move(blame_);
  }

 private:
  std::string front_text(const GroupRecords& group) const {
    return place_text(*group.front, all_.names);
  }

  void add(int rank, std::string reason) { blame_.culprits.try_emplace(rank, std::move(reason)); }

  void blame_mismatch(const GroupRecords& group, const FlightMismatch& mismatch) {
    if (!mismatch.has_majority) {
      blame_.is_undecided = true;
      return;
    }
    const auto record_of = [&](int rank) -> const FlightRecord& {
      return *group.collectives.at(rank).at(mismatch.sequence);
    };
    const std::vector<int>& most = mismatch.parties[0];
    for (const auto& party : std::span(mismatch.parties).subspan(1)) {
      for (const int rank : party) {
        add(rank, fmt::format("disagrees with {} about {} in {}", named_ranks(most),
                              short_text(record_of(most[0])),
                              differences(record_of(most[0]), record_of(rank))));
      }
    }
  }

  void blame_standing(const GroupRecords& group) {
    const FlightStanding& standing = group.standing;
    if (!standing.late.empty()) {
      blame_idle(group, standing.late, "not arrived in");
    } else if (!standing.only_posted.empty()) {
      blame_idle(group, standing.only_posted, "posted but not begun");
    } else if (!standing.done.empty()) {
      for (const int rank : standing.waiting) {
        add(rank, fmt::format("is still in {}, which others have left behind", front_text(group)));
      }
    } else {
      blame_awaited(group);
    }
  }

  void blame_idle(const GroupRecords& group, const std::vector<int>& ranks, const char* what) {
    blame_.any_late = true;
    for (const int rank : ranks) {
      if (all_.current_of(rank) == nullptr) {
        add(rank, fmt::format("has {} {}; {}", what, front_text(group), whereabouts(all_, rank)));
      }
    }
  }

  // All have arrived: one that all others wait for has stopped there.
  void blame_awaited(const GroupRecords& group) {
    const std::vector<int>& waiting = group.standing.waiting;
    for (const int rank : waiting) {
      std::vector<int> others;
      for (const int other : waiting) {
        const FlightRecord& record = *group.collectives.at(other).at(group.front->sequence);
        if (other != rank && record.straggler == rank) {
          others.push_back(other);
        }
      }
      if (others.size() > 1 && others.size() + 1 == waiting.size()) {
        add(rank, fmt::format("has arrived in {}, but {} wait for it there", front_text(group),
                              named_ranks(others)));
      }
    }
  }

  void blame_transfers(const GroupRecords& group) {
    for (const auto& [rank, record] : group.open_transfers) {
      const int peer = record->root;
      if (peer < 0 || peer >= all_.world_size) {
        continue;
      }
      blame_.any_late = true;
      if (all_.current_of(peer) == nullptr) {
        add(peer, fmt::format("rank {} waits for it in {}; {}", rank,
                              place_text(*record, all_.names), whereabouts(all_, peer)));
      }
    }
  }

  const FlightGroups& all_;
  Blame blame_;
};

}  // namespace

Blame find_culprits(const FlightGroups& all) {
  return Blaming(all).take();
}

std::string whereabouts(const FlightGroups& all, int rank) {
  const FlightRecord* const current = all.current_of(rank);
  if (current == nullptr) {
    return all.is_written(rank) ? "waiting nowhere" : "no ring written";
  }
  return (current->state == FlightState::Failed ? "failed in " : "waiting in ") +
         place_text(*current, all.names);
}

}  // namespace fsdptrain::comm
