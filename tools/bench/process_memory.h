#pragma once

namespace fsdptrain::tools {

// The largest resident memory of this process so far in bytes (VmHWM); 0 where the system does
// not say.
double peak_resident_bytes();

}  // namespace fsdptrain::tools
