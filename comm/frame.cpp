#include "comm/frame.h"

#include <algorithm>
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
  Differences(int my_rank, int their_rank) : my_rank_(my_rank), their_rank_(their_rank) {}

  template <class T>
  void add(bool differs, std::string_view aspect, const T& mine, const T& theirs) {
    if (differs) {
      found_.push_back(fmt::format("{}: {} on rank {}, {} on rank {}", aspect, mine, my_rank_,
                                   theirs, their_rank_));
    }
  }

  std::optional<std::string> text() const {
    if (found_.empty()) {
      return std::nullopt;
    }
    return fmt::format("{}", fmt::join(found_, "; "));
  }

 private:
  int my_rank_;
  int their_rank_;
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
                     frame.note[0] == '\0' ? "" : ", ", frame.note.data());
}

std::optional<std::string> difference(const Frame& mine, int my_rank, const Frame& theirs,
                                      int their_rank) {
  Differences all(my_rank, their_rank);
  all.add(mine.group_hash != theirs.group_hash, "group", mine.group_name.view(),
          theirs.group_name.view());
  all.add(!ops_meet(mine.op, theirs.op), "op", name_of(mine.op), name_of(theirs.op));
  all.add(mine.group_sequence != theirs.group_sequence, "sequence in the group",
          mine.group_sequence, theirs.group_sequence);
  all.add(mine.dtype != theirs.dtype, "dtype", fsdptrain::name_of(mine.dtype),
          fsdptrain::name_of(theirs.dtype));
  all.add(mine.dims != theirs.dims || mine.sizes != theirs.sizes, "shape", sizes_of(mine),
          sizes_of(theirs));
  if (ops_meet(mine.op, theirs.op)) {
    all.add(mine.num_incoming != theirs.num_outgoing, "count", mine.num_incoming,
            theirs.num_outgoing);
    all.add(mine.num_outgoing != theirs.num_incoming, "count", mine.num_outgoing,
            theirs.num_incoming);
  }
  all.add(mine.parts_hash != theirs.parts_hash, "parts of the ranks", mine.parts_hash,
          theirs.parts_hash);
  all.add(mine.reduce_op != theirs.reduce_op, "reduce op", name_of(mine.reduce_op),
          name_of(theirs.reduce_op));
  all.add(mine.factor != theirs.factor, "factor", mine.factor, theirs.factor);
  all.add(mine.root != theirs.root, "root", root_of(mine), root_of(theirs));
  all.add(mine.tag != theirs.tag, "tag", to_string(mine.tag), to_string(theirs.tag));
  return all.text();
}

}  // namespace fsdptrain::comm
