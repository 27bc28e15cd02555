#pragma once

#include <string>

namespace fsdptrain {

// Now, as ISO 8601 has it: "2026-01-31T23:59:59Z".
std::string now_utc();

}  // namespace fsdptrain
