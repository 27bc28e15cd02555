#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/supervisor.h"

namespace fsdptrain::tools {

struct FailureFacts {
  RankFailure failure;
  // After the start of the job.
  comm::Nanoseconds when{};
  std::deque<std::string> last_lines;
  // Of each rank.
  std::vector<std::optional<RankExit>> ends;
  // Of the rings, when it failed; empty where no rank has written any.
  std::string hang_report;
};

// For people, several lines: the first rank that failed and how, its last lines, what became of the
// others, then where all were.
std::string failure_report(const FailureFacts& facts);

// What a signal to the launcher did: `actions` are what the supervisor answered, `shutdown_timeout`
// is how long the ranks have, where it stops the job; else the job was ending already.
std::string signal_note(int signal, const Supervisor::Actions& actions,
                        std::optional<comm::Nanoseconds> shutdown_timeout);

}  // namespace fsdptrain::tools
