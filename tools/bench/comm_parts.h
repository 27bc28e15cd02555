#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "comm/flight/record.h"
#include "comm/meta/traffic.h"
#include "comm/world.h"

// What of a sharded step is communication, by what it is for.
namespace fsdptrain::tools {

enum class CommPart : std::uint8_t { GatherForward, GatherBackward, Reduce, Norm, Loss };
inline constexpr std::size_t kNumCommParts = 5;
inline constexpr std::array<std::string_view, kNumCommParts> kCommPartNames{
    "gather_forward", "gather_backward", "reduce", "norm", "loss"};

// By CommPart.
using CommNumbers = std::array<double, kNumCommParts>;

// The part of an operation of training; `loss_group` is the group in the tag of the loss.
CommPart comm_part_of(comm::Op op, std::uint32_t tag_group, comm::Direction direction,
                      std::uint32_t loss_group);

// The bytes that a rank receives for each.
CommNumbers bytes_of_parts(const comm::TrafficCounters& traffic, std::uint32_t loss_group);

struct CommSeconds {
  CommNumbers of{};
  // Within them: nothing to do but to wait for another rank.
  double waited = 0;
};

// Reads what the host of this rank spent within the operations of training since the last read(),
// from when a wait reaches an operation to its end, out of the flight ring of the world. On a
// device the host is in none of them.
class CommClock {
 public:
  // The world outlives it.
  CommClock(const comm::World& world, std::uint32_t loss_group);

  // Error if there were more operations than the ring keeps.
  CommSeconds read();

 private:
  double waited() const;

  const comm::World& world_;
  std::uint32_t loss_group_;
  std::uint64_t num_read_ = 0;
  double waited_before_ = 0;
};

}  // namespace fsdptrain::tools
