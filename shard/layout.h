#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/range.h"
#include "runtime/base/dtype.h"

// Where the parameters of one group lie in flat buffers that ranks share out: pure arithmetic in
// elements, without tensors and ranks. Nothing else decides an order or an offset, and nothing may
// depend on how they are decided: a checkpoint holds the result (docs/sharding.md).
//
// A buffer is W chunks of equal size, of which rank r owns chunk r. Chunks, and parameters where
// they begin, are on multiples of the granule. So a parameter has one local range on each rank,
// which may be empty, and what no parameter fills is a gap.
namespace fsdptrain::shard {

// Parameters share a buffer if they agree in this.
struct BufferKey {
  // What the owner keeps and optimizers update.
  DType original = DType::Float32;
  // What an all-gather moves, and the module sees.
  DType gathered = DType::Float32;
  // What gradients are reduced in; empty for frozen parameters, which have none.
  std::optional<DType> reduce = DType::Float32;

  bool trainable() const { return reduce.has_value(); }
  friend bool operator==(const BufferKey&, const BufferKey&) = default;
};

struct LayoutParameter {
  // Unique in the group.
  std::string name;
  std::int64_t numel = 0;
  BufferKey key = {};
  // This many consecutive elements, counted from the first, are never on two ranks.
  std::int64_t row_group = 1;
};

struct LayoutConstraints {
  // Sets of parameters, by name, that lie next to each other, without gaps and in this order: the
  // first begins on a granule.
  std::vector<std::vector<std::string>> adjacent = {};
};

using kernels::Range;

// The part of a parameter that one rank owns.
struct LocalRange {
  // Its number in the list that was planned.
  std::size_t parameter = 0;
  // Elements of the parameter, row-major.
  Range in_parameter;
  // The same elements in the rank's chunk.
  Range in_chunk;

  friend bool operator==(const LocalRange&, const LocalRange&) = default;
};

// A parameter in the whole buffer.
struct Placement {
  std::size_t parameter = 0;
  Range in_buffer;

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Who owns an element.
struct ElementOwner {
  int rank = 0;
  // Where in the rank's chunk.
  std::int64_t in_chunk = 0;

  friend bool operator==(const ElementOwner&, const ElementOwner&) = default;
};

// One buffer; a value. Ranks out of range are a ShapeError.
class BufferLayout {
 public:
  // By plan_layout() alone: placements in order, within W chunks.
  BufferLayout(BufferKey key, int num_ranks, std::int64_t granule, std::int64_t chunk_numel,
               std::vector<Placement> placements);

  const BufferKey& key() const { return key_; }
  int num_ranks() const { return num_ranks_; }
  std::int64_t granule() const { return granule_; }
  // Elements of a chunk, and of all.
  std::int64_t chunk_numel() const { return chunk_numel_; }
  std::int64_t numel() const { return chunk_numel_ * num_ranks_; }
  // Elements that are no parameter's.
  std::int64_t padding() const { return numel() - parameters_numel_; }
  // In the order of the buffer.
  const std::vector<Placement>& placements() const { return placements_; }

  // Of a placement of this buffer.
  LocalRange local_range(const Placement& placement, int rank) const;
  // The parts that are not empty, in the order of the chunk.
  std::vector<LocalRange> segments(int rank) const;
  // What placements() leave of the buffer: in order, none empty.
  std::vector<Range> gaps() const;
  // ShapeError unless the parameter has the element.
  ElementOwner owner_of(const Placement& placement, std::int64_t element) const;

  friend bool operator==(const BufferLayout&, const BufferLayout&) = default;

 private:
  void check_rank(int rank) const;

  BufferKey key_;
  int num_ranks_;
  std::int64_t granule_;
  std::int64_t chunk_numel_;
  std::int64_t parameters_numel_ = 0;
  std::vector<Placement> placements_;
};

// The place of one parameter: buffers[buffer].placements()[placement].
struct ParameterPlace {
  std::size_t buffer = 0;
  std::size_t placement = 0;
};

struct GroupLayout {
  // In the order of their first parameters.
  std::vector<BufferLayout> buffers;
  // Of every parameter, in the order of the list.
  std::vector<ParameterPlace> places;

  const Placement& placement_of(std::size_t parameter) const {
    const ParameterPlace& place = places[parameter];
    return buffers[place.buffer].placements()[place.placement];
  }
  const BufferLayout& buffer_of(std::size_t parameter) const {
    return buffers[places[parameter].buffer];
  }
};

// Granules have 128 elements, or 32 in a buffer of which a rank would own fewer than 400 of those.
// Without row groups a buffer has at most (W + its parameters) granules of padding. With them, and
// more than one rank, chunks are multiples of all row groups.
//
// ShapeError: less than one rank, an element count that is negative or above 2^48, row groups whose
// common multiple is more than 1 % of a chunk. ConfigError: two parameters of a name, adjacent
// parameters that are unknown, in two sets, of different keys, or that begin within a row group.
GroupLayout plan_layout(std::span<const LayoutParameter> parameters, int num_ranks,
                        const LayoutConstraints& constraints = {});

}  // namespace fsdptrain::shard
