#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Who holds a lock: enough to say whether it still lives.
namespace fsdptrain::checkpoint {

struct LockOwner {
  std::string host;
  // Of this start of the machine, and of the space that numbers of processes are of: containers of
  // one machine share the first and not the second. Empty where the system does not say.
  std::string boot;
  std::string pid_space;
  std::int64_t pid = 0;
  // Of the process, in the system's ticks since the machine started: a later process of the same
  // number has another.
  std::uint64_t start_time = 0;
  // 32 hexadecimal digits of this one lock.
  std::string token;
  // UTC, ISO 8601, for people.
  std::string since;

  friend bool operator==(const LockOwner&, const LockOwner&) = default;
};

// This process, from now on, with a token of its own.
LockOwner this_process();
// Whether this process can tell whether that one lives: same boot, same space of numbers.
bool is_neighbor(const LockOwner& owner, const LockOwner& self);
// Of a neighbor.
bool is_alive(const LockOwner& owner);

// One line of JSON, and back; none for text that is no owner.
std::string to_text(const LockOwner& owner);
std::optional<LockOwner> parse_owner(std::string_view text);
// "process 4711 on host h since 2026-01-01T00:00:00Z"
std::string to_string(const LockOwner& owner);

}  // namespace fsdptrain::checkpoint
