#pragma once

#include <cstdint>
#include <vector>

#include "comm/operation.h"

// Which bytes of which rank go where: pure arithmetic over counts, the same on every backend.
namespace fsdptrain::comm {

// Elements of one buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t numel = 0;

  bool empty() const { return numel == 0; }
  friend bool operator==(const Range&, const Range&) = default;
};

// A part of an operation in which each rank reads from others what they have ready at its begin.
struct Phase {
  // Others read from my output, which the phase before completed; else from my input.
  bool exports_output = false;
  // exports[i]: what rank i of the group reads from me.
  std::vector<Range> exports;
  // imports[i]: where in my output that which I read from rank i goes. When reducing, all that are
  // not empty are equal and `own` is there as well.
  std::vector<Range> imports;
  bool reduces = false;
  // What I give to my own output, in my input, and its place there.
  Range own;
  std::int64_t own_target = 0;
};

// One phase, or two: an all_reduce is a reduce_scatter over nearly equal parts and an all_gather
// of them.
std::vector<Phase> plan_transfer(const Operation& operation, const Member& member);

// The part of rank `index` when `numel` elements are split among `size` ranks: whole blocks of 64
// as evenly as they go, the rest at the end.
Range even_part(std::int64_t numel, int index, int size);

}  // namespace fsdptrain::comm
