#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/state/training_state.h"

// What ranks tell each other when a save begins.
namespace fsdptrain::checkpoint {

struct Opening {
  // Of rank 0.
  std::string attempt;
  // Empty where the rank can go on.
  std::string error;
  // Which object has a state that cannot be saved, and why; empty where none has.
  std::string refusal;
  std::int64_t step = 0;
  // Which file it writes.
  std::int64_t file = 0;
  // Of what all ranks have alike: where tensors lie.
  std::string layout_digest;
  // By the number of the tensor: updates so far, of those that no other rank tells.
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;
  // The states of objects per rank, and digests of those that are replicated.
  std::map<std::string, nlohmann::json> objects;
  std::map<std::string, std::string> digests;
};

// This rank's; asks objects for their state. One that JSON cannot hold (a value that is not finite,
// text that is not UTF-8) is its refusal.
Opening opening_of(const TrainingState& state, const StateTensors& tensors,
                   const SavedLayout& layout, std::int64_t step);
std::string to_text(const Opening& opening);
// By a rank of the same program.
Opening parse_opening(const std::string& text);

// The manifest but for its files; `mine` is one of `openings`, before it was text. IoError with the
// text of a rank that cannot go on; ConfigError where an object is refused, and where ranks differ
// in what must be the same, naming it and a rank.
Manifest agree(std::span<const Opening> openings, const Opening& mine, const TrainingState& state,
               SavedLayout layout);

}  // namespace fsdptrain::checkpoint
