#include "comm/flight/table.h"

#include <algorithm>
#include <fmt/format.h>

#include "comm/flight/text.h"

namespace fsdptrain::comm {
namespace {

// Of the records that are shown, those behind the open one.
constexpr std::size_t kShownBehind = 3;

// Shorter waits are what is between ranks in any case.
constexpr Nanoseconds kShownWait = std::chrono::milliseconds(100);

// In floating point: damaged times must not overflow.
double date_of(const FlightHeader& header, Nanoseconds time) {
  const auto ns = [](Nanoseconds t) { return static_cast<double>(t.count()); };
  return ns(time) - ns(header.start_clock) + ns(header.start_date);
}

Nanoseconds last_time(const FlightRecord& record) {
  // A rank that waits looks at the clock again and again.
  const Nanoseconds waited = record.started.count() > 0 && record.longest_wait.count() > 0 &&
                                     record.longest_wait < std::chrono::hours(24 * 365)
                                 ? record.started + record.longest_wait
                                 : record.started;
  return std::max({record.posted, waited, record.completed});
}

std::string wait_text(const FlightRecord& record) {
  return record.straggler == kNoRank || record.longest_wait < kShownWait
             ? ""
             : fmt::format("; waited longest for rank {}: {:.1f} s", record.straggler,
                           static_cast<double>(record.longest_wait.count()) / 1e9);
}

Nanoseconds time_of_state(const FlightRecord& record) {
  switch (record.state) {
    case FlightState::Posted:
      return record.posted;
    case FlightState::Started:
      return record.started;
    case FlightState::Completed:
    case FlightState::Failed:
      break;
  }
  return record.completed;
}

}  // namespace

double age_of(const FlightHeader& header, Nanoseconds time, Nanoseconds now) {
  return std::max(0.0, (static_cast<double>(now.count()) - date_of(header, time)) / 1e9);
}

Nanoseconds last_moment(std::span<const FlightSnapshot> rings) {
  // Beyond it a date is damage.
  constexpr double kLatest = 4e18;
  double last = 0;
  for (const FlightSnapshot& ring : rings) {
    for (const FlightRecord& record : ring.records) {
      last = std::max(last, date_of(ring.header, last_time(record)));
    }
  }
  return Nanoseconds(static_cast<Nanoseconds::rep>(std::min(last, kLatest)));
}

const FlightRecord* open_operation(const FlightSnapshot& ring) {
  // One that was given up counts unless the rank went on behind it.
  const FlightRecord* open = nullptr;
  for (const FlightRecord& record : ring.records) {
    if (record.state == FlightState::Completed) {
      open = open != nullptr && open->state == FlightState::Failed ? nullptr : open;
    } else if (record.state != FlightState::Posted && open == nullptr) {
      open = &record;
    }
  }
  return open;
}

std::vector<const FlightRecord*> telling_records(const FlightSnapshot& ring, std::size_t count) {
  const std::size_t size = ring.records.size();
  const FlightRecord* const open = open_operation(ring);
  const std::size_t at =
      open == nullptr ? size : static_cast<std::size_t>(open - ring.records.data()) + 1;
  const std::size_t end = std::min(size, at + (count > 0 ? std::min(kShownBehind, count - 1) : 0));
  std::vector<const FlightRecord*> records;
  for (std::size_t i = end - std::min(end, count); i < end; ++i) {
    records.push_back(&ring.records[i]);
  }
  return records;
}

std::string rank_line(const FlightSnapshot& ring, Nanoseconds now) {
  const FlightHeader& header = ring.header;
  const FlightIdentity& identity = header.identity;
  if (header.pid == 0) {
    return fmt::format("rank {} has written nothing yet\n", identity.rank);
  }
  const std::string who =
      fmt::format("rank {} (process {} on {}{})", identity.rank, header.pid, identity.host,
                  ring.has_damaged_names ? "; its names are damaged" : "");
  const FlightRecord* const open = open_operation(ring);
  if (open == nullptr) {
    return fmt::format("{} waits for nobody{}\n", who,
                       ring.records.empty() ? ": no operation between ranks yet" : "");
  }
  const std::string place = place_text(*open, ring.names) + " " + detail_text(*open);
  if (open->state == FlightState::Failed) {
    return fmt::format("{} failed in {} {:.1f} s ago{}\n", who, place,
                       age_of(header, open->completed, now), wait_text(*open));
  }
  return fmt::format(
      "{} waits in {} since {:.1f} s, {}{}\n", who, place, age_of(header, open->started, now),
      open->deadline == kNoDeadline ? "without a deadline"
                                    : fmt::format("for {} s at most", open->deadline),
      wait_text(*open));
}

std::string operations_table(const FlightSnapshot& ring, Nanoseconds now, std::size_t count) {
  std::string text;
  const std::vector<const FlightRecord*> records = telling_records(ring, count);
  for (const FlightRecord* record : records) {
    text += fmt::format("  {:<9} {:>8.1f} s ago  {} {}{}\n", name_of(record->state),
                        age_of(ring.header, time_of_state(*record), now),
                        place_text(*record, ring.names), detail_text(*record), wait_text(*record));
  }
  if (!records.empty() && records.back() != &ring.records.back()) {
    text += fmt::format("  and {} more behind it\n", &ring.records.back() - records.back());
  }
  return text;
}

}  // namespace fsdptrain::comm
