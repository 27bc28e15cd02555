#include "tools/launch/report.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <map>

#include "comm/ranks.h"

namespace fsdptrain::tools {
namespace {

std::string ends_of_others(const FailureFacts& facts) {
  std::map<std::string, std::vector<int>> by_end;
  for (std::size_t rank = 0; rank < facts.ends.size(); ++rank) {
    if (static_cast<int>(rank) != facts.failure.rank) {
      const auto& end = facts.ends[rank];
      by_end[end ? describe(*end) : "could not be ended"].push_back(static_cast<int>(rank));
    }
  }
  std::string text;
  for (const auto& [end, ranks] : by_end) {
    text +=
        fmt::format("launch: then {} {}\n", comm::named_ranks(ranks),
                    ranks.size() > 1 && end.starts_with("was ") ? "were " + end.substr(4) : end);
  }
  return text;
}

}  // namespace

std::string failure_report(const FailureFacts& facts) {
  const auto& [rank, text] = facts.failure;
  std::string report = fmt::format("launch: rank {} failed first, {} after the start: it {}\n",
                                   rank, comm::to_string(facts.when), text);
  if (facts.last_lines.empty()) {
    report += fmt::format("launch: rank {} has printed nothing\n", rank);
  } else {
    report += fmt::format("launch: the last lines of rank {}:\n", rank);
    for (const std::string& line : facts.last_lines) {
      report += fmt::format("  | {}\n", line);
    }
  }
  return report + ends_of_others(facts) + facts.hang_report;
}

std::string signal_note(int signal, const Supervisor::Actions& actions,
                        std::optional<comm::Nanoseconds> shutdown_timeout) {
  if (shutdown_timeout) {
    return fmt::format("stopped by signal {}; waiting {} for the ranks to end", signal,
                       comm::to_string(*shutdown_timeout));
  }
  if (actions.signals.empty()) {
    return fmt::format("signal {} while the job ends: nothing more is done", signal);
  }
  const bool kills =
      std::ranges::any_of(actions.signals, [](const auto& sent) { return sent.second == SIGKILL; });
  return fmt::format("signal {} while the job ends: {}", signal,
                     kills ? "the ranks are killed" : "the ranks get it, too");
}

}  // namespace fsdptrain::tools
