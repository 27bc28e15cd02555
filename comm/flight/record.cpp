#include "comm/flight/record.h"

#include <algorithm>
#include <chrono>

namespace fsdptrain::comm {

std::uint16_t deadline_seconds(Nanoseconds timeout) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(timeout).count();
  return static_cast<std::uint16_t>(std::clamp<std::chrono::seconds::rep>(seconds, 0, kNoDeadline));
}

void FlightRecord::set_group_name(std::string_view name) {
  group_name = {};
  std::ranges::copy(name.substr(0, kMaxGroupName), group_name.begin());
}

std::string_view FlightRecord::group_name_text() const {
  return {group_name.data(),
          static_cast<std::size_t>(std::ranges::find(group_name, '\0') - group_name.begin())};
}

}  // namespace fsdptrain::comm
