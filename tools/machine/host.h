#pragma once

#include <cstdint>
#include <string>

// What a benchmark or a run notes about where it ran.
namespace fsdptrain::tools {

// "AMD EPYC 7B13, 2 processors" from /proc/cpuinfo.
std::string machine_name();
// "Linux 6.1.0 x86_64"
std::string os_name();
// Of the machine, whatever part of it this process may use; 0 where the system does not say.
std::int64_t physical_memory_bytes();
// What programs can have of it now, without anything else being moved to disk; 0 where the system
// does not say.
std::int64_t available_memory_bytes();

}  // namespace fsdptrain::tools
