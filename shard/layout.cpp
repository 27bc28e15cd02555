#include "shard/layout.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace fsdptrain::shard {

BufferLayout::BufferLayout(BufferKey key, int num_ranks, std::int64_t granule,
                           std::int64_t chunk_numel, std::vector<Placement> placements)
    : key_(key),
      num_ranks_(num_ranks),
      granule_(granule),
      chunk_numel_(chunk_numel),
      placements_(std::move(placements)) {
  for (const Placement& placement : placements_) {
    parameters_numel_ += placement.in_buffer.size();
  }
}

void BufferLayout::check_rank(int rank) const {
  check<ShapeError>(rank >= 0 && rank < num_ranks_, "layout: a rank must be in [0, {}), got {}",
                    num_ranks_, rank);
}

LocalRange BufferLayout::local_range(const Placement& placement, int rank) const {
  check_rank(rank);
  const std::int64_t chunk_begin = chunk_numel_ * rank;
  const auto [begin, end] = placement.in_buffer;
  const std::int64_t first = std::clamp(chunk_begin, begin, end);
  const std::int64_t last = std::clamp(chunk_begin + chunk_numel_, begin, end);
  const std::int64_t in_chunk = std::clamp(first - chunk_begin, std::int64_t{0}, chunk_numel_);
  return {.parameter = placement.parameter,
          .in_parameter = {first - begin, last - begin},
          .in_chunk = {in_chunk, in_chunk + last - first}};
}

std::vector<LocalRange> BufferLayout::segments(int rank) const {
  std::vector<LocalRange> segments;
  for (const Placement& placement : placements_) {
    const LocalRange local = local_range(placement, rank);
    if (local.in_chunk.size() > 0) {
      segments.push_back(local);
    }
  }
  return segments;
}

std::vector<Range> BufferLayout::gaps() const {
  std::vector<Range> gaps;
  std::int64_t covered = 0;
  for (const auto& [parameter, in_buffer] : placements_) {
    if (in_buffer.begin > covered) {
      gaps.push_back({covered, in_buffer.begin});
    }
    covered = std::max(covered, in_buffer.end);
  }
  if (numel() > covered) {
    gaps.push_back({covered, numel()});
  }
  return gaps;
}

ElementOwner BufferLayout::owner_of(const Placement& placement, std::int64_t element) const {
  check<ShapeError>(element >= 0 && element < placement.in_buffer.size(),
                    "layout: an element of parameter {} must be in [0, {}), got {}",
                    placement.parameter, placement.in_buffer.size(), element);
  const std::int64_t offset = placement.in_buffer.begin + element;
  return {static_cast<int>(offset / chunk_numel_), offset % chunk_numel_};
}

}  // namespace fsdptrain::shard
