#include "checkpoint/folder/lock_owner.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "checkpoint/folder/names.h"
#include "runtime/base/host_name.h"
#include "runtime/base/utc.h"

namespace fsdptrain::checkpoint {
namespace {

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string pid_space() {
  std::array<char, 64> text{};
  const auto size = ::readlink("/proc/self/ns/pid", text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

struct ProcessState {
  char state = 'X';
  std::uint64_t start_time = 0;
};
// None where there is no such process.
std::optional<ProcessState> process_state(std::int64_t pid) {
  const std::string line = first_line_of(fmt::format("/proc/{}/stat", pid));
  // The name before it may have anything in it, parentheses too.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  // proc(5): the state is the third field, the start the 22nd.
  std::istringstream rest(line.substr(name_end + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  constexpr std::size_t kStart = 22 - 3;
  if (fields.size() <= kStart) {
    return std::nullopt;
  }
  return ProcessState{.state = fields[0][0], .start_time = std::stoull(fields[kStart])};
}

}  // namespace

LockOwner this_process() {
  const std::int64_t pid = ::getpid();
  return {.host = host_name(),
          .boot = first_line_of("/proc/sys/kernel/random/boot_id"),
          .pid_space = pid_space(),
          .pid = pid,
          .start_time = process_state(pid).value_or(ProcessState{}).start_time,
          .token = make_attempt(),
          .since = now_utc()};
}

bool is_neighbor(const LockOwner& owner, const LockOwner& self) {
  return !self.boot.empty() && !self.pid_space.empty() && owner.boot == self.boot &&
         owner.pid_space == self.pid_space;
}

bool is_alive(const LockOwner& owner) {
  const std::optional<ProcessState> state = process_state(owner.pid);
  if (!state) {
    // Some systems hide the processes of other users.
    return ::kill(static_cast<pid_t>(owner.pid), 0) == 0 || errno != ESRCH;
  }
  return state->state != 'Z' && state->state != 'X' && state->start_time == owner.start_time;
}

std::string to_text(const LockOwner& owner) {
  return nlohmann::json{{"host", owner.host},
                        {"boot", owner.boot},
                        {"pid_space", owner.pid_space},
                        {"pid", owner.pid},
                        {"start_time", owner.start_time},
                        {"token", owner.token},
                        {"since", owner.since}}
             .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::optional<LockOwner> parse_owner(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return LockOwner{.host = json.at("host").get<std::string>(),
                     .boot = json.at("boot").get<std::string>(),
                     .pid_space = json.at("pid_space").get<std::string>(),
                     .pid = json.at("pid").get<std::int64_t>(),
                     .start_time = json.at("start_time").get<std::uint64_t>(),
                     .token = json.at("token").get<std::string>(),
                     .since = json.at("since").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string to_string(const LockOwner& owner) {
  return fmt::format("process {} on host {} since {}", owner.pid, owner.host, owner.since);
}

}  // namespace fsdptrain::checkpoint
