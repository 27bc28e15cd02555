#include "tools/launch/processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/error.h"

namespace fsdptrain::tools {
namespace {

// A process that has ended before it is read, or that is another user's. Anything else is no word
// on the process: this one may have no descriptor left.
void check_of_process(const std::string& path, int error) {
  check<IoError>(error == ENOENT || error == ESRCH || error == EACCES || error == EPERM,
                 "{}: reading it failed: {}", path, std::generic_category().message(error));
}

// Empty where the system does not tell.
std::string content(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    check_of_process(path, errno);
    return {};
  }
  std::string text;
  std::array<char, 4096> bytes{};
  ssize_t count = 0;
  while ((count = ::read(file.number(), bytes.data(), bytes.size())) != 0) {
    if (count > 0) {
      text.append(bytes.data(), static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      check_of_process(path, errno);
      return {};
    }
  }
  return text;
}

std::optional<pid_t> number(std::string_view text) {
  pid_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

std::string_view field(std::string_view text, int index) {
  for (; index > 0; --index) {
    text.remove_prefix(std::min(text.find(' '), text.size() - 1) + 1);
  }
  return text.substr(0, text.find(' '));
}

// Nothing where it has ended.
std::optional<RunningProcess> read_process(pid_t id) {
  const std::string text = content(fmt::format("/proc/{}/stat", id));
  // "17 (name) S 4 ...", and the name may be anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || text.size() < name_end + 2) {
    return std::nullopt;
  }
  const std::string_view rest = std::string_view(text).substr(name_end + 2);
  const std::string_view state = field(rest, 0);
  const std::optional<pid_t> parent = number(field(rest, 1));
  // Of a zombie with more than its first thread, the others go on.
  const bool has_ended =
      state == "X" || state == "x" || (state == "Z" && number(field(rest, 17)).value_or(1) <= 1);
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
  check<IoError>(!error, "/proc: listing the processes failed: {}", error.message());
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
