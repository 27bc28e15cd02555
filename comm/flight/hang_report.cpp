#include "comm/flight/hang_report.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "comm/flight/blame.h"
#include "comm/flight/groups.h"
#include "comm/flight/sentences.h"
#include "comm/flight/table.h"
#include "comm/flight/text.h"
#include "comm/ranks.h"

namespace fsdptrain::comm {
namespace {

// More are only numbered.
constexpr std::size_t kMaxCulpritsShown = 16;
// A rank begins to wait a little before it notes that.
constexpr Nanoseconds kBeforeStart = std::chrono::milliseconds(100);

// Whether it was given up at its deadline.
bool is_timed_out(const FlightRecord& record) {
  const bool has_waited = record.started != Nanoseconds{0};
  return has_waited && record.deadline != kNoDeadline &&
         record.completed - record.started + kBeforeStart >= std::chrono::seconds(record.deadline);
}

class Report {
 public:
  Report(const FlightGroups& all, const HangOptions& options)
      : all_(all), options_(options), blame_(find_culprits(all)) {}

  HangReport make() const {
    std::string stuck;
    std::string idle;
    for (const GroupRecords& group : all_.groups) {
      const std::string title =
          fmt::format("group '{}' ({:016x}, {} ranks):", group.name, group.group, group.size);
      if (group.has_trouble()) {
        stuck += title + "\n" + describe(group);
      } else {
        idle += title + " nobody waits\n";
      }
    }
    HangReport report;
    const bool is_over = !(options_.is_live || options_.is_explained) || is_anything_overdue();
    report.text = head() + verdict(is_over) + stuck + idle;
    for (const auto& [rank, reason] : blame_.culprits) {
      if (is_over) {
        report.culprits.push_back(rank);
      }
    }
    return report;
  }

 private:
  double age(int rank, Nanoseconds time) const {
    return age_of(all_.ranks.at(rank).ring->header, time, options_.now);
  }

  std::string full_text(const FlightRecord& record) const {
    return place_text(record, all_.names) + " " + detail_text(record);
  }

  // Or at odds, or given up: in a job that goes on for whatever reason, else at a deadline.
  bool is_anything_overdue() const {
    const auto is_overdue = [this](const auto& entry) {
      const FlightRecord* const current = entry.second.current;
      if (current != nullptr && current->state == FlightState::Failed && options_.is_explained) {
        return is_timed_out(*current);
      }
      return current != nullptr &&
             (current->state == FlightState::Failed ||
              (current->deadline != kNoDeadline &&
               age(entry.first, current->started) > static_cast<double>(current->deadline)));
    };
    return std::ranges::any_of(all_.ranks, is_overdue) ||
           std::ranges::any_of(
               all_.groups, [](const GroupRecords& group) { return group.mismatch.has_value(); });
  }

  // "2.0 s, of 600 s at most"
  std::string longest_wait() const {
    double longest = -1;
    std::uint16_t deadline = kNoDeadline;
    for (const auto& [rank, view] : all_.ranks) {
      if (view.current != nullptr && age(rank, view.current->started) > longest) {
        longest = age(rank, view.current->started);
        deadline = view.current->deadline;
      }
    }
    return fmt::format(
        "{:.1f} s, {}", longest,
        deadline == kNoDeadline ? "without a deadline" : fmt::format("of {} s at most", deadline));
  }

  Sentence waiting(int rank, const FlightRecord& record) const {
    if (record.state == FlightState::Failed) {
      return {"failed in", "failed in", full_text(record) + " ", age(rank, record.completed),
              " ago"};
    }
    return {"waits in", "wait in", full_text(record) + " since ", age(rank, record.started)};
  }

  Sentence lateness(int rank, const GroupRecords& group) const {
    const auto records = group.collectives.find(rank);
    if (records == group.collectives.end()) {
      return {"has", "have", "not arrived: no record in this group; " + whereabouts(all_, rank)};
    }
    const FlightRecord& last = *records->second.rbegin()->second;
    const bool is_done = last.state == FlightState::Completed;
    return {"has", "have",
            fmt::format("not arrived: the last is {}, {} ", short_text(last),
                        is_done ? "completed" : "posted"),
            age(rank, is_done ? last.completed : last.posted), " ago; " + whereabouts(all_, rank)};
  }

  std::string describe(const GroupRecords& group) const {
    return (group.mismatch ? describe_mismatch(group, *group.mismatch) : "") +
           (group.front != nullptr ? describe_standing(group) : "") + describe_transfers(group);
  }

  std::string describe_mismatch(const GroupRecords& group, const FlightMismatch& mismatch) const {
    std::string text = fmt::format("  ranks disagree about seq {}:\n", mismatch.sequence);
    const auto record_of = [&](const std::vector<int>& party) -> const FlightRecord& {
      return *group.collectives.at(party[0]).at(mismatch.sequence);
    };
    for (const auto& party : mismatch.parties) {
      const std::string different = differences(record_of(mismatch.parties[0]), record_of(party));
      text += fmt::format("    {}: {}{}\n", named_ranks(party), full_text(record_of(party)),
                          different.empty() ? "" : "; differs in " + different);
    }
    return text;
  }

  std::string describe_standing(const GroupRecords& group) const {
    const auto record_of = [&](int rank) -> const FlightRecord& {
      return *group.collectives.at(rank).at(group.front->sequence);
    };
    Sentences sentences;
    Sentences waits;
    for (const int rank : group.standing.waiting) {
      const FlightRecord& record = record_of(rank);
      sentences.add(rank, waiting(rank, record));
      if (record.straggler != kNoRank) {
        waits.add(rank, {"waited", "waited", fmt::format("longest for rank {}: ", record.straggler),
                         static_cast<double>(record.longest_wait.count()) / 1e9});
      }
    }
    for (const int rank : group.standing.only_posted) {
      sentences.add(rank, {"has", "have", fmt::format("posted {} ", full_text(record_of(rank))),
                           age(rank, record_of(rank).posted), " ago; " + whereabouts(all_, rank)});
    }
    for (const int rank : group.standing.done) {
      sentences.add(rank, {"has", "have",
                           fmt::format("left {} behind; {}", short_text(*group.front),
                                       whereabouts(all_, rank))});
    }
    for (const int rank : group.standing.late) {
      sentences.add(rank, lateness(rank, group));
    }
    for (const int rank : group.standing.unknown) {
      sentences.add(rank,
                    {"has", "have",
                     "lost all records of this group to newer ones; " + whereabouts(all_, rank)});
    }
    std::string text = sentences.text() + waits.text();
    if (group.size > group.members.size()) {
      text += fmt::format("  {} more of its {} ranks: no record in this group tells which\n",
                          group.size - group.members.size(), group.size);
    }
    return text;
  }

  std::string describe_transfers(const GroupRecords& group) const {
    Sentences sentences;
    for (const auto& [rank, record] : group.open_transfers) {
      Sentence sentence = waiting(rank, *record);
      const int peer = record->root;
      if (peer >= 0 && peer < all_.world_size) {
        sentence.after += fmt::format("; rank {}: {}", peer, whereabouts(all_, peer));
      }
      sentences.add(rank, sentence);
    }
    return sentences.text();
  }

  std::vector<int> ranks_where(const auto& condition) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < all_.world_size; ++rank) {
      if (condition(rank)) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

  std::string head() const {
    std::string text = fmt::format("hang report: rings of {} of {} ranks, attempt {}\n",
                                   all_.ranks.size(), all_.world_size, all_.attempt);
    if (all_.num_left_out > 0) {
      text += fmt::format("rings of earlier attempts, left out: {}\n", all_.num_left_out);
    }
    const auto list = [&](const char* what, const auto& condition) {
      if (const std::vector<int> ranks = ranks_where(condition); !ranks.empty()) {
        text += fmt::format("{}: {}\n", what, named_ranks(ranks));
      }
    };
    list("no ring", [&](int rank) { return !all_.has_ring(rank); });
    list("no process has begun to write",
         [&](int rank) { return all_.has_ring(rank) && !all_.is_written(rank); });
    list("records that cannot be read",
         [&](int rank) { return all_.has_ring(rank) && all_.ranks.at(rank).ring->num_torn > 0; });
    return text;
  }

  std::string verdict(bool is_over) const {
    if (std::ranges::none_of(all_.groups, &GroupRecords::has_trouble)) {
      return "nobody waits\n";
    }
    if (!is_over && options_.is_explained) {
      return "no culprit: no deadline has passed\n";
    }
    if (!is_over) {
      return fmt::format("nothing is overdue: the longest wait is {}\n", longest_wait()) +
             culprits_text("so far", "so far");
    }
    return blame_.culprits.empty() ? "no culprit: " + why_nobody() + "\n"
                                   : culprits_text("culprit", "culprits");
  }

  std::string culprits_text(const char* what_one, const char* what_many) const {
    std::string text;
    std::vector<int> rest;
    std::size_t num_shown = 0;
    for (const auto& [rank, reason] : blame_.culprits) {
      if (num_shown == kMaxCulpritsShown) {
        rest.push_back(rank);
        continue;
      }
      ++num_shown;
      text += fmt::format("{}: rank {}{}: {}\n", what_one, rank, process_text(rank), reason);
    }
    return rest.empty() ? text : text + fmt::format("more {}: {}\n", what_many, named_ranks(rest));
  }

  std::string why_nobody() const {
    if (blame_.is_undecided) {
      return "ranks disagree, and no side has a majority";
    }
    const std::vector<int> silent = ranks_where([&](int rank) { return !all_.is_written(rank); });
    if (!silent.empty()) {
      return fmt::format("nothing is known of {}", named_ranks(silent));
    }
    if (blame_.any_late) {
      return "every late rank waits in another operation: ranks issue them in different orders";
    }
    return "all known ranks have arrived, and nothing moves";
  }

  std::string process_text(int rank) const {
    if (!all_.is_written(rank)) {
      return "";
    }
    const FlightHeader& header = all_.ranks.at(rank).ring->header;
    return fmt::format(" (process {} on {})", header.pid, header.identity.host);
  }

  const FlightGroups& all_;
  const HangOptions& options_;
  Blame blame_;
};

}  // namespace

HangReport describe_hang(std::span<const FlightSnapshot> rings, const HangOptions& options) {
  const FlightGroups all = sort_by_group(rings, options.groups);
  return Report(all, options).make();
}

}  // namespace fsdptrain::comm
