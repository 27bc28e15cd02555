#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/save/background_work.h"

// What ranks tell each other while a save is under way: a text each, at every step boundary.
namespace fsdptrain::checkpoint {

// A rank's own, of what its work has come to: none while it goes on. Rank 0 says whether it takes
// too long.
std::string report_of(const std::optional<BackgroundWork::Outcome>& outcome, bool is_late);

struct Report {
  enum class State { Pending, Done, Failed };
  State state = State::Pending;
  // Of the outcome.
  std::string_view text;
};

// Of all ranks, in their order.
struct Reports {
  bool is_late = false;
  std::vector<Report> ranks;

  // The first one.
  std::optional<std::size_t> failed_rank() const;
  std::vector<std::size_t> pending_ranks() const;
};

// Of texts that outlive the result.
Reports parse_reports(std::span<const std::string> texts);

}  // namespace fsdptrain::checkpoint
