#include "tools/bench/process_memory.h"

#include <fstream>
#include <string>
#include <string_view>

namespace fsdptrain::tools {
namespace {

double bytes_of_status(std::string_view key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      return std::stod(line.substr(key.size())) * 1024;
    }
  }
  return 0;
}

}  // namespace

double peak_resident_bytes() {
  return bytes_of_status("VmHWM:");
}

double resident_bytes() {
  return bytes_of_status("VmRSS:");
}

}  // namespace fsdptrain::tools
