#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "comm/tag.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape.h"

// What two ranks tell each other about a collective before they move bytes for it.
namespace fsdptrain::comm {

// The values are read by tools from the flight ring: do not change them.
enum class Op : std::uint8_t {
  CreateGroup = 0,
  AllGather = 1,
  ReduceScatter = 2,
  AllReduce = 3,
  Broadcast = 4,
  Reduce = 5,
  Gather = 6,
  Scatter = 7,
  AllToAll = 8,
  Send = 9,
  Recv = 10,
  Barrier = 11,
};
std::string_view name_of(Op op);

enum class ReduceOp : std::uint8_t {
  // The sum over ranks.
  Sum = 0,
  // The sum, times one over the number of ranks. Floating dtypes only.
  Avg = 1,
  // The sum of what each rank gave, times one factor for all. Floating dtypes only.
  PremulSum = 2,
  // NaN propagates, and -0 < +0.
  Min = 3,
  Max = 4,
};
std::string_view name_of(ReduceOp op);

// How an operation combines what the ranks give.
struct Reduction {
  ReduceOp op = ReduceOp::Sum;
  // Of PremulSum.
  double factor = 1;

  friend bool operator==(const Reduction&, const Reduction&) = default;
};

// The text in an array that zeros follow, or all of it: peers write it.
template <std::size_t size>
std::string_view text_in(const std::array<char, size>& text) {
  return {text.data(), ::strnlen(text.data(), size)};
}

// The name of a group, cut to what a frame has room for.
struct GroupName {
  std::array<char, 24> text{};

  GroupName() = default;
  explicit GroupName(std::string_view name);
  std::string_view view() const { return text_in(text); }
};

// Plain bytes: it travels through shared memory and sockets between processes of one build. Where
// a field does not matter to an operation, both sides leave it as it is here.
struct Frame {
  Op op = Op::Barrier;
  ReduceOp reduce_op = ReduceOp::Sum;
  DType dtype = DType::UInt8;
  // The sizes of one rank's part; with uneven parts all but the first dimension.
  std::uint8_t dims = 0;
  std::array<std::int64_t, kMaxDims> sizes{};
  // The world rank that gives or receives alone; -1 where there is none.
  std::int32_t root = -1;
  double factor = 1;
  // Elements that this rank sends to the other and wants from it.
  std::int64_t num_outgoing = 0;
  std::int64_t num_incoming = 0;
  // A hash of the parts of all ranks; 0 where they are even.
  std::uint64_t parts_hash = 0;
  Tag tag;
  // Of name and members; names may be equal, so they are compared by this.
  std::uint64_t group_hash = 0;
  GroupName group_name;
  // Collectives of the group so far.
  std::uint64_t group_sequence = 0;
  // Operations between the two ranks so far, in all groups.
  std::uint64_t pair_sequence = 0;
  // For errors only, cut where it is longer: the members of a new group, the name of the group of
  // parameters, counts that are uneven, and in checking mode the place of the call.
  std::array<char, 112> note{};
};

// "all_gather of bfloat16[16, 8], sequence 41 of group 'shard', tag root 0 group 3 ..."
std::string to_string(const Frame& frame);

// What a rank posted.
struct Posted {
  int rank = 0;
  Frame frame;
};

// Both operations and every aspect in which they do not fit, in the same words on both ranks;
// nothing if they do. "rank 0 is in all_gather of ..., rank 2 in reduce_scatter of ...: op:
// all_gather on rank 0, reduce_scatter on rank 2; count: 16 on rank 0, 12 on rank 2"
std::optional<std::string> difference(const Posted& mine, const Posted& theirs);

}  // namespace fsdptrain::comm
