#pragma once

#include <cstdint>
#include <string>

namespace fsdptrain::comm {

enum class Direction : std::uint8_t { None, Forward, Backward };

// Which use of which parameter group a collective serves. Ranks that meet in one collective with
// different tags are refused before a byte moves.
struct Tag {
  // The sharded model, counted from 0.
  std::uint32_t root = 0;
  // The parameter group of that model.
  std::uint32_t group = 0;
  // The run of the group's forward.
  std::uint32_t invocation = 0;
  Direction direction = Direction::None;

  friend bool operator==(const Tag&, const Tag&) = default;
};

// "root 0 group 3 invocation 1 backward"
std::string to_string(const Tag& tag);

}  // namespace fsdptrain::comm
