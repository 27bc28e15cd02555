#include "tools/launch/processes.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

namespace fsdptrain::tools {
namespace {

// Empty where the process ends before it is read: that fails then, and an iterator of characters
// would throw.
std::string content(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<pid_t> number(std::string_view text) {
  pid_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

// Nothing where it has ended.
std::optional<RunningProcess> read_process(pid_t id) {
  const std::string text = content(fmt::format("/proc/{}/stat", id));
  // "17 (name) S 4 ...", and the name may be anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || text.size() < name_end + 5) {
    return std::nullopt;
  }
  const char state = text[name_end + 2];
  const std::string_view rest = std::string_view(text).substr(name_end + 4);
  const std::optional<pid_t> parent = number(rest.substr(0, rest.find(' ')));
  const bool has_ended = state == 'Z' || state == 'X' || state == 'x';
  return has_ended || !parent ? std::nullopt : std::optional(RunningProcess{id, *parent});
}

}  // namespace

std::vector<RunningProcess> running_processes() {
  std::vector<RunningProcess> processes;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::optional<pid_t> id = number(entry->path().filename().native());
    const std::optional<RunningProcess> process = id ? read_process(*id) : std::nullopt;
    if (process) {
      processes.push_back(*process);
    }
  }
  return processes;
}

std::vector<pid_t> with_descendants(const std::vector<RunningProcess>& processes,
                                    const std::function<bool(const RunningProcess&)>& is_root) {
  std::multimap<pid_t, pid_t> children;
  std::vector<pid_t> found;
  std::set<pid_t> seen;
  for (const RunningProcess& process : processes) {
    children.emplace(process.parent, process.id);
    if (is_root(process) && seen.insert(process.id).second) {
      found.push_back(process.id);
    }
  }
  for (std::size_t next = 0; next < found.size(); ++next) {
    const auto [begin, end] = children.equal_range(found[next]);
    for (auto child = begin; child != end; ++child) {
      if (seen.insert(child->second).second) {
        found.push_back(child->second);
      }
    }
  }
  return found;
}

bool has_variable(pid_t process, const std::string& variable) {
  const std::string entries = '\0' + content(fmt::format("/proc/{}/environ", process));
  return entries.find('\0' + variable + '\0') != std::string::npos;
}

}  // namespace fsdptrain::tools
