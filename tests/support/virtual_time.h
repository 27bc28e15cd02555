#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

// How long a schedule of streams takes when every operation has a given duration: no clock, no
// device, only arithmetic.
namespace fsdptrain::testing {

// What an operation keeps busy while it runs. A device has one of each, and one link per lane, or
// one for all lanes.
enum class Resource { None, Compute, Copy, Link };

// Where an operation runs. A collective has one place on each device.
struct Place {
  int device = 0;
  int stream = 0;
  Resource resource = Resource::Compute;
  // Which link, where they are separate; others ignore it.
  int lane = 0;
};

struct VirtualOp {
  std::string name = {};
  std::vector<Place> places = {};
  std::chrono::nanoseconds duration{0};
  // Earlier operations of the list that end before this one begins, its streams' own aside.
  std::vector<std::size_t> dependencies = {};
};

enum class LinkModel { Shared, Separate };

struct Span {
  std::chrono::nanoseconds begin{0};
  std::chrono::nanoseconds end{0};
};

struct Schedule {
  // One for each operation.
  std::vector<Span> spans = {};
  std::chrono::nanoseconds makespan{0};
};

}  // namespace fsdptrain::testing
