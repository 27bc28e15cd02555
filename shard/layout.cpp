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

namespace {

// What sorted ranges leave of [0, end).
template <class Ranges, class Projection>
std::vector<Range> gaps_between(const Ranges& ranges, std::int64_t end, Projection range_of) {
  std::vector<Range> gaps;
  std::int64_t covered = 0;
  for (const auto& element : ranges) {
    const Range range = range_of(element);
    if (range.begin > covered) {
      gaps.push_back({covered, range.begin});
    }
    covered = std::max(covered, range.end);
  }
  if (end > covered) {
    gaps.push_back({covered, end});
  }
  return gaps;
}

}  // namespace

std::vector<Range> BufferLayout::chunk_gaps(int rank) const {
  return gaps_between(segments(rank), chunk_numel_,
                      [](const LocalRange& local) { return local.in_chunk; });
}

std::vector<Range> BufferLayout::gaps() const {
  return gaps_between(placements_, numel(),
                      [](const Placement& placement) { return placement.in_buffer; });
}

ElementOwner BufferLayout::owner_of(const Placement& placement, std::int64_t element) const {
  check<ShapeError>(element >= 0 && element < placement.in_buffer.size(),
                    "layout: an element of parameter {} must be in [0, {}), got {}",
                    placement.parameter, placement.in_buffer.size(), element);
  const std::int64_t offset = placement.in_buffer.begin + element;
  return {static_cast<int>(offset / chunk_numel_), offset % chunk_numel_};
}

}  // namespace fsdptrain::shard
