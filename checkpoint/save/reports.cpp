#include "checkpoint/save/reports.h"

#include <algorithm>

namespace fsdptrain::checkpoint {
namespace {

// On the wire, the first character of what a rank reports.
constexpr char kPending = '.';
constexpr char kDone = '+';
constexpr char kFailed = '!';
// Rank 0, before these: it has taken too long.
constexpr char kLate = '~';

Report parse_report(std::string_view text) {
  if (text.starts_with(kFailed)) {
    return {.state = Report::State::Failed, .text = text.substr(1)};
  }
  if (text.starts_with(kDone)) {
    return {.state = Report::State::Done, .text = text.substr(1)};
  }
  return {};
}

}  // namespace

std::string report_of(const std::optional<BackgroundWork::Outcome>& outcome, bool is_late) {
  const bool has_failed = outcome && outcome->failed;
  std::string text;
  // A failure ends the save in any case.
  if (is_late && !has_failed) {
    text += kLate;
  }
  text += !outcome ? kPending : has_failed ? kFailed : kDone;
  return outcome ? text + outcome->text : text;
}

std::optional<std::size_t> Reports::failed_rank() const {
  const auto found = std::ranges::find(ranks, Report::State::Failed, &Report::state);
  return found == ranks.end() ? std::nullopt
                              : std::optional(static_cast<std::size_t>(found - ranks.begin()));
}

std::vector<std::size_t> Reports::pending_ranks() const {
  std::vector<std::size_t> pending;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].state == Report::State::Pending) {
      pending.push_back(rank);
    }
  }
  return pending;
}

Reports parse_reports(std::span<const std::string> texts) {
  Reports reports;
  for (std::string_view text : texts) {
    if (reports.ranks.empty() && text.starts_with(kLate)) {
      reports.is_late = true;
      text.remove_prefix(1);
    }
    reports.ranks.push_back(parse_report(text));
  }
  return reports;
}

}  // namespace fsdptrain::checkpoint
