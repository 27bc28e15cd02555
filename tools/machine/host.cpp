#include "tools/machine/host.h"

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <string_view>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

namespace fsdptrain::tools {

std::string machine_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      model = line.substr(colon + 2);
      break;
    }
  }
  return fmt::format("{}, {} processors", model, std::thread::hardware_concurrency());
}

std::string os_name() {
  utsname name{};
  return ::uname(&name) == 0 ? fmt::format("{} {} {}", name.sysname, name.release, name.machine)
                             : "unknown";
}

std::int64_t physical_memory_bytes() {
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? pages * ::sysconf(_SC_PAGESIZE) : 0;
}

std::int64_t available_memory_bytes() {
  constexpr std::string_view kKey = "MemAvailable:";
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kKey)) {
      return std::strtoll(line.c_str() + kKey.size(), nullptr, 10) * 1024;
    }
  }
  return 0;
}

}  // namespace fsdptrain::tools
