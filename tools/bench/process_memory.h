#pragma once

namespace fsdptrain::tools {

constexpr double kMiB = 1024.0 * 1024.0;

// The largest resident memory of this process so far in bytes (VmHWM); 0 where the system does
// not say.
double peak_resident_bytes();
// What is resident now (VmRSS).
double resident_bytes();

}  // namespace fsdptrain::tools
