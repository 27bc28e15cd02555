#include "comm/link/frame.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <span>
#include <type_traits>
#include <vector>

namespace fsdptrain::comm {
namespace {

static_assert(std::is_trivially_copyable_v<Frame>);

std::string sizes_of(const Frame& frame) {
  const std::size_t dims = std::min<std::size_t>(frame.dims, kMaxDims);
  return fmt::format("[{}]", fmt::join(std::span(frame.sizes).first(dims), ", "));
}

std::string root_of(const Frame& frame) {
  return frame.root < 0 ? "none" : fmt::format("rank {}", frame.root);
}

// A send meets a receive, every other operation its like.
bool ops_meet(Op mine, Op theirs) {
  if (mine == Op::Send || mine == Op::Recv) {
    return theirs == (mine == Op::Send ? Op::Recv : Op::Send);
  }
  return mine == theirs;
}

// Collects "aspect: a on rank 0, b on rank 1".
class Differences {
 public:
  Differences(int low, int high) : low_(low), high_(high) {}

  template <class T>
  void add(bool differs, std::string_view aspect, const T& of_low, const T& of_high) {
    if (differs) {
      found_.push_back(
          fmt::format("{}: {} on rank {}, {} on rank {}", aspect, of_low, low_, of_high, high_));
    }
  }

  const std::vector<std::string>& found() const { return found_; }

 private:
  int low_;
  int high_;
  std::vector<std::string> found_;
};

}  // namespace

std::string_view name_of(Op op) {
  switch (op) {
    case Op::CreateGroup:
      return "create_group";
    case Op::AllGather:
      return "all_gather";
    case Op::ReduceScatter:
      return "reduce_scatter";
    case Op::AllReduce:
      return "all_reduce";
    case Op::Broadcast:
      return "broadcast";
    case Op::Reduce:
      return "reduce";
    case Op::Gather:
      return "gather";
    case Op::Scatter:
      return "scatter";
    case Op::AllToAll:
      return "all_to_all";
    case Op::Send:
      return "send";
    case Op::Recv:
      return "recv";
    case Op::Barrier:
      return "barrier";
  }
  return "an unknown operation";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "sum";
    case ReduceOp::Avg:
      return "avg";
    case ReduceOp::PremulSum:
      return "premul-sum";
    case ReduceOp::Min:
      return "min";
    case ReduceOp::Max:
      return "max";
  }
  return "an unknown reduction";
}

GroupName::GroupName(std::string_view name) {
  // The last character stays zero.
  const std::size_t size = std::min(name.size(), text.size() - 1);
  std::ranges::copy(name.substr(0, size), text.begin());
}

std::string to_string(const Frame& frame) {
  return fmt::format("{} of {}{}, sequence {} of group '{}', tag {}{}{}", name_of(frame.op),
                     fsdptrain::name_of(frame.dtype), sizes_of(frame), frame.group_sequence,
                     frame.group_name.view(), to_string(frame.tag),
                     frame.note[0] == '\0' ? "" : ", ", text_in(frame.note));
}

std::optional<std::string> difference(const Posted& mine, const Posted& theirs) {
  const bool is_low = mine.rank < theirs.rank;
  const auto& [low_rank, low] = is_low ? mine : theirs;
  const auto& [high_rank, high] = is_low ? theirs : mine;
  Differences all(low_rank, high_rank);
  all.add(low.group_hash != high.group_hash, "group", low.group_name.view(),
          high.group_name.view());
  all.add(!ops_meet(low.op, high.op), "op", name_of(low.op), name_of(high.op));
  all.add(low.group_sequence != high.group_sequence, "sequence in the group", low.group_sequence,
          high.group_sequence);
  all.add(low.dtype != high.dtype, "dtype", fsdptrain::name_of(low.dtype),
          fsdptrain::name_of(high.dtype));
  all.add(low.dims != high.dims || low.sizes != high.sizes, "shape", sizes_of(low), sizes_of(high));
  if (ops_meet(low.op, high.op)) {
    all.add(low.num_incoming != high.num_outgoing, "count", low.num_incoming, high.num_outgoing);
    all.add(low.num_outgoing != high.num_incoming, "count", low.num_outgoing, high.num_incoming);
  }
  all.add(low.parts_hash != high.parts_hash, "hash of the counts", low.parts_hash, high.parts_hash);
  all.add(low.reduce_op != high.reduce_op, "reduce op", name_of(low.reduce_op),
          name_of(high.reduce_op));
  // As bits: no NaN differs from itself.
  all.add(std::bit_cast<std::uint64_t>(low.factor) != std::bit_cast<std::uint64_t>(high.factor),
          "factor", low.factor, high.factor);
  all.add(low.root != high.root, "root", root_of(low), root_of(high));
  all.add(low.tag != high.tag, "tag", to_string(low.tag), to_string(high.tag));
  if (all.found().empty()) {
    return std::nullopt;
  }
  return fmt::format("rank {} is in {}, rank {} in {}: {}", low_rank, to_string(low), high_rank,
                     to_string(high), fmt::join(all.found(), "; "));
}

}  // namespace fsdptrain::comm
