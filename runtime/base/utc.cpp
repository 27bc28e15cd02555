#include "runtime/base/utc.h"

#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace fsdptrain {

std::string now_utc() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace fsdptrain
