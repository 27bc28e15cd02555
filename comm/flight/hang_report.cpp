#include "comm/flight/hang_report.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <utility>

#include "comm/flight/groups.h"
#include "comm/flight/table.h"
#include "comm/flight/text.h"
#include "comm/ranks.h"

namespace fsdptrain::comm {
namespace {

// More are only numbered.
constexpr std::size_t kMaxCulpritsShown = 16;

std::string quoted_group(std::string_view name) {
  return fmt::format("group '{}'", name);
}

// What is said of a rank. Of several ranks it is one sentence where only the times differ.
struct Sentence {
  std::string verb_of_one;
  std::string verb_of_many;
  std::string before;
  std::optional<double> seconds = std::nullopt;
  std::string after = {};
};

class Sentences {
 public:
  void add(int rank, const Sentence& sentence) {
    const double seconds = sentence.seconds.value_or(0);
    const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
      return entry.sentence.verb_of_one == sentence.verb_of_one &&
             entry.sentence.before == sentence.before && entry.sentence.after == sentence.after;
    });
    Entry& entry = found == entries_.end()
                       ? entries_.emplace_back(Entry{sentence, {}, seconds, seconds})
                       : *found;
    entry.ranks.push_back(rank);
    entry.least = std::min(entry.least, seconds);
    entry.most = std::max(entry.most, seconds);
  }

  std::string text() const {
    std::string text;
    for (const auto& [sentence, ranks, least, most] : entries_) {
      text += fmt::format("  {} {} {}{}{}\n", named_ranks(ranks),
                          ranks.size() == 1 ? sentence.verb_of_one : sentence.verb_of_many,
                          sentence.before, sentence.seconds ? seconds_text(least, most) : "",
                          sentence.after);
    }
    return text;
  }

 private:
  struct Entry {
    Sentence sentence;
    std::vector<int> ranks;
    double least;
    double most;
  };

  static std::string seconds_text(double least, double most) {
    const std::string first = fmt::format("{:.1f}", least);
    const std::string last = fmt::format("{:.1f}", most);
    return first == last ? first + " s" : fmt::format("{}-{} s", first, last);
  }

  std::vector<Entry> entries_;
};

class Report {
 public:
  Report(const FlightGroups& all, Nanoseconds now) : all_(all), now_(now) {
    for (const auto& [rank, view] : all.ranks) {
      names_.add(view.ring->names);
    }
  }

  HangReport make() {
    std::string stuck;
    std::string idle;
    for (const GroupRecords& group : all_.groups) {
      const std::string title =
          fmt::format("{} ({:016x}, {} ranks):", quoted_group(group.name), group.group, group.size);
      const std::string text = describe(group);
      (text.empty() ? idle : stuck) += title + (text.empty() ? " nobody waits\n" : "\n" + text);
    }
    HangReport report;
    report.text = head() + verdict() + stuck + idle;
    for (const auto& [rank, reason] : culprits_) {
      report.culprits.push_back(rank);
    }
    return report;
  }

 private:
  double age(int rank, Nanoseconds time) const {
    return age_of(all_.ranks.at(rank).ring->header, time, now_);
  }

  bool has_ring(int rank) const { return all_.ranks.contains(rank); }
  bool is_written(int rank) const {
    return has_ring(rank) && all_.ranks.at(rank).ring->header.pid != 0;
  }
  const FlightRecord* current_of(int rank) const {
    return has_ring(rank) ? all_.ranks.at(rank).current : nullptr;
  }

  std::string place_text(const FlightRecord& record) const {
    return comm::place_text(record, names_);
  }

  std::string full_text(const FlightRecord& record) const {
    return place_text(record) + " " + detail_text(record);
  }

  std::string whereabouts(int rank) const {
    const FlightRecord* const current = current_of(rank);
    if (current == nullptr) {
      return is_written(rank) ? "waiting nowhere" : "no ring written";
    }
    return (current->state == FlightState::Failed ? "failed in " : "waiting in ") +
           place_text(*current);
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
      return {"has", "have", "not arrived: no record in this group; " + whereabouts(rank)};
    }
    const FlightRecord& last = *records->second.rbegin()->second;
    const bool is_done = last.state == FlightState::Completed;
    return {"has", "have",
            fmt::format("not arrived: the last is {}, {} ", short_text(last),
                        is_done ? "completed" : "posted"),
            age(rank, is_done ? last.completed : last.posted), " ago; " + whereabouts(rank)};
  }

  // Empty where nobody waits and nobody disagrees.
  std::string describe(const GroupRecords& group) {
    std::string text;
    const std::optional<FlightMismatch> mismatch = find_mismatch(group);
    if (mismatch) {
      text += describe_mismatch(group, *mismatch);
      blame_mismatch(group, *mismatch);
    }
    if (group.front != nullptr) {
      const FlightStanding standing = stand(all_, group);
      text += describe_standing(group, standing);
      if (!mismatch) {
        blame(group, standing);
      }
    }
    text += describe_transfers(group);
    any_trouble_ = any_trouble_ || !text.empty();
    return text;
  }

  std::string describe_standing(const GroupRecords& group, const FlightStanding& standing) const {
    const auto record_of = [&](int rank) -> const FlightRecord& {
      return *group.collectives.at(rank).at(group.front->sequence);
    };
    Sentences sentences;
    Sentences waits;
    for (const int rank : standing.waiting) {
      const FlightRecord& record = record_of(rank);
      sentences.add(rank, waiting(rank, record));
      if (record.straggler != kNoRank) {
        waits.add(rank, {"waited", "waited", fmt::format("longest for rank {}: ", record.straggler),
                         static_cast<double>(record.longest_wait.count()) / 1e9});
      }
    }
    for (const int rank : standing.only_posted) {
      sentences.add(rank, {"has", "have", fmt::format("posted {} ", full_text(record_of(rank))),
                           age(rank, record_of(rank).posted), " ago; " + whereabouts(rank)});
    }
    for (const int rank : standing.done) {
      sentences.add(
          rank, {"has", "have",
                 fmt::format("left {} behind; {}", short_text(*group.front), whereabouts(rank))});
    }
    for (const int rank : standing.late) {
      sentences.add(rank, lateness(rank, group));
    }
    for (const int rank : standing.unknown) {
      sentences.add(rank, {"has", "have",
                           "lost all records of this group to newer ones; " + whereabouts(rank)});
    }
    std::string text = sentences.text() + waits.text();
    if (group.size > group.members.size()) {
      text += fmt::format("  {} more of its {} ranks: no record in this group tells which\n",
                          group.size - group.members.size(), group.size);
    }
    return text;
  }

  std::string describe_transfers(const GroupRecords& group) {
    Sentences sentences;
    for (const auto& [rank, record] : group.open_transfers) {
      Sentence sentence = waiting(rank, *record);
      const int peer = record->root;
      const bool has_peer = peer >= 0 && peer < all_.world_size;
      if (has_peer) {
        sentence.after += fmt::format("; rank {}: {}", peer, whereabouts(peer));
      }
      sentences.add(rank, sentence);
      any_late_ = any_late_ || has_peer;
      if (has_peer && current_of(peer) == nullptr) {
        add_culprit(peer, fmt::format("rank {} waits for it in {}; {}", rank, place_text(*record),
                                      whereabouts(peer)));
      }
    }
    return sentences.text();
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

  void blame_mismatch(const GroupRecords& group, const FlightMismatch& mismatch) {
    if (!mismatch.has_majority) {
      is_undecided_ = true;
      return;
    }
    const auto record_of = [&](int rank) -> const FlightRecord& {
      return *group.collectives.at(rank).at(mismatch.sequence);
    };
    const std::vector<int>& most = mismatch.parties[0];
    for (const auto& party : std::span(mismatch.parties).subspan(1)) {
      for (const int rank : party) {
        add_culprit(rank, fmt::format("disagrees with {} about {} in {}", named_ranks(most),
                                      short_text(record_of(most[0])),
                                      differences(record_of(most[0]), record_of(rank))));
      }
    }
  }

  void blame(const GroupRecords& group, const FlightStanding& standing) {
    const std::string front = place_text(*group.front);
    const auto blame_idle = [&](const std::vector<int>& ranks, const char* what) {
      any_late_ = true;
      for (const int rank : ranks) {
        if (current_of(rank) == nullptr) {
          add_culprit(rank, fmt::format("has {} {}; {}", what, front, whereabouts(rank)));
        }
      }
    };
    if (!standing.late.empty()) {
      blame_idle(standing.late, "not arrived in");
    } else if (!standing.only_posted.empty()) {
      blame_idle(standing.only_posted, "posted but not begun");
    } else if (!standing.done.empty()) {
      for (const int rank : standing.waiting) {
        add_culprit(rank, fmt::format("is still in {}, which others have left behind", front));
      }
    } else {
      blame_awaited(group, standing);
    }
  }

  // All have arrived: one that all others wait for has stopped there.
  void blame_awaited(const GroupRecords& group, const FlightStanding& standing) {
    for (const int rank : standing.waiting) {
      std::vector<int> others;
      for (const int other : standing.waiting) {
        const FlightRecord& record = *group.collectives.at(other).at(group.front->sequence);
        if (other != rank && record.straggler == rank) {
          others.push_back(other);
        }
      }
      if (others.size() > 1 && others.size() + 1 == standing.waiting.size()) {
        add_culprit(rank, fmt::format("has arrived in {}, but {} wait for it there",
                                      place_text(*group.front), named_ranks(others)));
      }
    }
  }

  void add_culprit(int rank, std::string reason) { culprits_.try_emplace(rank, std::move(reason)); }

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
    list("no ring", [&](int rank) { return !has_ring(rank); });
    list("no process has begun to write",
         [&](int rank) { return has_ring(rank) && !is_written(rank); });
    list("records that cannot be read",
         [&](int rank) { return has_ring(rank) && all_.ranks.at(rank).ring->num_torn > 0; });
    return text;
  }

  std::string verdict() const {
    if (!any_trouble_) {
      return "nobody waits\n";
    }
    if (culprits_.empty()) {
      return "no culprit: " + why_nobody() + "\n";
    }
    std::string text;
    std::vector<int> rest;
    std::size_t num_shown = 0;
    for (const auto& [rank, reason] : culprits_) {
      if (num_shown == kMaxCulpritsShown) {
        rest.push_back(rank);
        continue;
      }
      ++num_shown;
      text += fmt::format("culprit: rank {}{}: {}\n", rank, process_text(rank), reason);
    }
    return rest.empty() ? text : text + fmt::format("more culprits: {}\n", named_ranks(rest));
  }

  std::string why_nobody() const {
    if (is_undecided_) {
      return "ranks disagree, and no side has a majority";
    }
    const std::vector<int> silent = ranks_where([&](int rank) { return !is_written(rank); });
    if (!silent.empty()) {
      return fmt::format("nothing is known of {}", named_ranks(silent));
    }
    if (any_late_) {
      return "every late rank waits in another operation: ranks issue them in different orders";
    }
    return "all known ranks have arrived, and nothing moves";
  }

  std::string process_text(int rank) const {
    if (!is_written(rank)) {
      return "";
    }
    const FlightHeader& header = all_.ranks.at(rank).ring->header;
    return fmt::format(" (process {} on {})", header.pid, header.identity.host);
  }

  const FlightGroups& all_;
  Nanoseconds now_;
  // Of all rings: ranks call the groups of parameters alike.
  TagNames names_;
  // With the reason, the first one found.
  std::map<int, std::string> culprits_;
  bool any_trouble_ = false;
  bool any_late_ = false;
  bool is_undecided_ = false;
};

}  // namespace

HangReport describe_hang(std::span<const FlightSnapshot> rings, Nanoseconds now,
                         std::span<const FlightGroup> groups) {
  const FlightGroups all = sort_by_group(rings, groups);
  return Report(all, now).make();
}

}  // namespace fsdptrain::comm
