#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/state/training_state.h"

// How a checkpoint and a state that is to take it fit each other, before anything is read. The same
// on all ranks.
namespace fsdptrain::checkpoint {

// A plane of a tensor that is both saved and wanted.
struct Match {
  // Index into the state's tensors, and into the planes of its group.
  std::size_t tensor = 0;
  std::size_t plane = 0;
  const SavedTensor* saved = nullptr;
  DType saved_dtype = DType::Float32;
};

struct Fit {
  std::vector<Match> matches;
  // Objects that are both saved and wanted.
  std::vector<std::string> objects;
  // What keeps the state from taking the checkpoint, one line each.
  std::vector<std::string> misfits;
  // What the options allow, one line each.
  std::vector<std::string> differences;
};

// Of a manifest that outlives the result.
Fit fit(const Manifest& manifest, const StateTensors& tensors,
        const std::map<std::string, Stateful*>& objects, const LoadOptions& options);

// The first of them, and how many more there are, joined by "; ".
std::string shown_lines(const std::vector<std::string>& lines);

}  // namespace fsdptrain::checkpoint
