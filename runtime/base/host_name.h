#pragma once

#include <string>

namespace fsdptrain {

// Of this machine, as the system has it; "unknown" where it does not say.
std::string host_name();

}  // namespace fsdptrain
