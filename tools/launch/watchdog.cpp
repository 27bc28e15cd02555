#include "tools/launch/watchdog.h"

#include <fmt/format.h>

#include "comm/flight/text.h"

namespace fsdptrain::tools {
namespace {

using namespace std::chrono_literals;
using comm::FlightRecord;

constexpr comm::Nanoseconds kPatience = 5s;

}  // namespace

std::optional<std::string> find_overdue(const comm::FlightSnapshot& ring, comm::Nanoseconds now) {
  for (const FlightRecord& record : ring.records) {
    const auto deadline = std::chrono::seconds(record.deadline);
    if (record.state != comm::FlightState::Started || record.deadline == comm::kNoDeadline ||
        now - record.started <= deadline + kPatience) {
      continue;
    }
    return fmt::format("has been in {} {} for {}, with a deadline of {} s, and does not give up",
                       comm::place_text(record, ring.names), comm::detail_text(record),
                       comm::to_string(now - record.started), record.deadline);
  }
  return std::nullopt;
}

}  // namespace fsdptrain::tools
