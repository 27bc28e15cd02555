#include "tools/launch/watchdog.h"

#include <fmt/format.h>

#include "comm/collective/collective_record.h"
#include "runtime/base/quoted.h"

namespace fsdptrain::tools {
namespace {

using namespace std::chrono_literals;
using comm::FlightRecord;

constexpr comm::Nanoseconds kPatience = 5s;

std::string op_of(const FlightRecord& record) {
  const comm::FlightNames names = comm::collective_names();
  return record.op < names.ops.size() ? std::string(names.ops[record.op])
                                      : fmt::format("op {}", record.op);
}

}  // namespace

std::optional<std::string> find_overdue(const comm::FlightSnapshot& ring, comm::Nanoseconds now) {
  for (const FlightRecord& record : ring.records) {
    const auto deadline = std::chrono::seconds(record.deadline);
    if (record.state != comm::FlightState::Started || record.deadline == comm::kNoDeadline ||
        now - record.started <= deadline + kPatience) {
      continue;
    }
    return fmt::format(
        "has been in {} seq {} of group {} (tag root {} group {} invocation {}) for {}, with a "
        "deadline of {} s, and does not give up",
        op_of(record), record.sequence, in_quotes(record.group_name_text()), record.tag.root,
        record.tag.group, record.tag.invocation, comm::to_string(now - record.started),
        record.deadline);
  }
  return std::nullopt;
}

}  // namespace fsdptrain::tools
