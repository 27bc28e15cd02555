#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/flight/reader.h"

namespace fsdptrain::comm {

// Who belongs to a group. Records tell the size of a group and those who were ever in it; more is
// only needed to name, of a part of the world, a rank that never came.
struct FlightGroup {
  std::uint64_t group = 0;
  std::vector<int> ranks;
};

struct HangOptions {
  // Of the system's date.
  Nanoseconds now{};
  // The ranks go on while they are looked at. Where no deadline has passed, nobody is to blame yet,
  // and the text says who would be.
  bool is_live = false;
  // They end for a reason that is known. Where no deadline has passed, whoever the others wait for
  // is none, and nobody is to blame.
  bool is_explained = false;
  std::span<const FlightGroup> groups = {};
};

struct HangReport {
  // Ranks that others wait for and that wait for none, or that do something else than most; in
  // order. Empty where no rank is to blame by itself: the text says why.
  std::vector<int> culprits;
  // Lines, each with its end.
  std::string text;
};

// Who waits in which operation, since when and for whom, from the rings of all ranks that have one.
// Rings of attempts before the last are left out. Pure: the same rings make the same text.
// DataError where rings are of different worlds or twice of one rank.
HangReport describe_hang(std::span<const FlightSnapshot> rings, const HangOptions& options);

}  // namespace fsdptrain::comm
