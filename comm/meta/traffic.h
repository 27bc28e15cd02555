#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "comm/carrier.h"

// What a rank's operations move, counted from what they are asked to do.
namespace fsdptrain::comm {

struct Traffic {
  std::int64_t calls = 0;
  // To other ranks and from them, where each gives to each what it needs, as ranks on CPUs do.
  // Rings move as much in gathers and reductions.
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;

  Traffic& operator+=(const Traffic& other);
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// What is counted together.
struct TrafficUse {
  Op op = Op::Barrier;
  // The name of the process group.
  std::string ranks = {};
  // Of the tag.
  std::uint32_t root = 0;
  std::uint32_t group = 0;
  Direction direction = Direction::None;

  friend bool operator<(const TrafficUse& a, const TrafficUse& b);
  friend bool operator==(const TrafficUse&, const TrafficUse&) = default;
};

struct TrafficCounters {
  // Barriers have calls and no bytes; making a group is none.
  std::map<TrafficUse, Traffic> by_use;

  Traffic of(Op op) const;
  Traffic total() const;
  void add(const Call& call);
  friend bool operator==(const TrafficCounters&, const TrafficCounters&) = default;
};

}  // namespace fsdptrain::comm
