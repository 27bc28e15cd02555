#include "comm/flight/text.h"

#include <fmt/format.h>

#include "comm/link/frame.h"
#include "comm/tag.h"
#include "runtime/base/dtype.h"

namespace fsdptrain::comm {
namespace {

template <class Enum>
std::string word(Enum last, std::uint8_t value, std::string_view what) {
  return value <= static_cast<std::uint8_t>(last) ? std::string(name_of(static_cast<Enum>(value)))
                                                  : fmt::format("{} {}", what, value);
}

}  // namespace

std::string op_text(const FlightRecord& record) {
  return word(Op::Barrier, record.op, "op");
}

std::string reduce_op_text(const FlightRecord& record) {
  return record.reduce_op == kNoReduceOp ? "" : word(ReduceOp::Max, record.reduce_op, "reduce op");
}

std::string dtype_text(const FlightRecord& record) {
  return record.dtype == kNoDType ? "" : word(DType::UInt8, record.dtype, "dtype");
}

std::string tag_text(const FlightTag& tag) {
  return to_string(Tag{tag.root, tag.group, tag.invocation, static_cast<Direction>(tag.direction)});
}

std::string_view name_of(FlightState state) {
  switch (state) {
    case FlightState::Posted:
      return "posted";
    case FlightState::Started:
      return "started";
    case FlightState::Completed:
      return "completed";
    case FlightState::Failed:
      return "failed";
  }
  return "in no known state";
}

std::string short_text(const FlightRecord& record) {
  return fmt::format("{} seq {}", op_text(record), record.sequence);
}

std::string place_text(const FlightRecord& record, const TagNames& names) {
  const std::string_view name = names.find(record.tag);
  return fmt::format("{} of group '{}'{}{}", short_text(record), record.group_name_text(),
                     name.empty() ? "" : " for ", name);
}

std::string detail_text(const FlightRecord& record) {
  std::string text = fmt::format("(tag {}", tag_text(record.tag));
  if (record.dtype != kNoDType) {
    text += fmt::format(", {} x {}", dtype_text(record), record.count);
  }
  if (record.reduce_op != kNoReduceOp) {
    text += ", " + reduce_op_text(record);
  }
  if (record.root != kNoRank) {
    text += fmt::format(", {} rank {}", record.is_point_to_point ? "peer" : "root", record.root);
  }
  return text + ")";
}

}  // namespace fsdptrain::comm
