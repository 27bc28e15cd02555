#include "tools/bench/process_memory.h"

#include <fstream>
#include <string>

namespace fsdptrain::tools {

double peak_resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) {
      return std::stod(line.substr(6)) * 1024;
    }
  }
  return 0;
}

}  // namespace fsdptrain::tools
