#include "checkpoint/plan/row_map.h"

#include <algorithm>

namespace fsdptrain::checkpoint {

RowMap::RowMap(const Box& saved, const WantedPart& wanted, std::int64_t& operations)
    : wanted_(wanted.in_box), operations_(operations) {
  std::int64_t saved_stride = 1;
  std::int64_t wanted_stride = 1;
  // As long as both boxes have the whole dimension, the rows go on across it.
  bool is_contiguous = true;
  for (std::size_t dim = saved.size.size(); dim-- > 0;) {
    const std::int64_t begin = std::max(saved.offset[dim], wanted.box.offset[dim]);
    const std::int64_t end = std::min(saved.offset[dim] + saved.size[dim],
                                      wanted.box.offset[dim] + wanted.box.size[dim]);
    const std::int64_t count = std::max<std::int64_t>(end - begin, 0);
    first_.from += (begin - saved.offset[dim]) * saved_stride;
    first_.to += (begin - wanted.box.offset[dim]) * wanted_stride;
    if (is_contiguous) {
      row_size_ *= count;
    } else {
      steps_.push_back({.count = count, .from = saved_stride, .to = wanted_stride});
      num_rows_ *= count;
    }
    is_contiguous = is_contiguous && count == saved.size[dim] && count == wanted.box.size[dim];
    saved_stride *= saved.size[dim];
    wanted_stride *= wanted.box.size[dim];
  }
  if (row_size_ == 0) {
    num_rows_ = 0;
  }
}

RowMap::Row RowMap::row(std::int64_t index) const {
  ++operations_;
  Row row = first_;
  for (const Step& step : steps_) {
    row.from += index % step.count * step.from;
    row.to += index % step.count * step.to;
    index /= step.count;
  }
  return row;
}

kernels::Range RowMap::wanted_in(const Row& row, kernels::Range saved) const {
  const std::int64_t to_from = row.from - row.to;
  return {std::max({row.from, saved.begin, wanted_.begin + to_from}),
          std::min({row.from + row_size_, saved.end, wanted_.end + to_from})};
}

std::int64_t RowMap::first_row(std::int64_t from) const {
  std::int64_t low = 0;
  std::int64_t high = num_rows_;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    const Row at = row(middle);
    if (at.from + row_size_ > from && at.to + row_size_ > wanted_.begin) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

std::optional<std::int64_t> RowMap::first_from(std::int64_t begin) const {
  constexpr std::int64_t kNoEnd = std::int64_t{1} << 62;
  const std::int64_t first = first_row(begin);
  if (first == num_rows_) {
    return std::nullopt;
  }
  // Where this row has nothing that is wanted, `begin` is behind all that is.
  const kernels::Range wanted = wanted_in(row(first), {begin, kNoEnd});
  return wanted.size() > 0 ? std::optional(wanted.begin) : std::nullopt;
}

std::optional<std::int64_t> RowMap::last_from(std::int64_t end) const {
  // Behind the rows that begin before both ends.
  std::int64_t low = 0;
  std::int64_t high = num_rows_;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    const Row at = row(middle);
    if (at.from < end && at.to < wanted_.end) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) {
    return std::nullopt;
  }
  const kernels::Range wanted = wanted_in(row(low - 1), {0, end});
  return wanted.size() > 0 ? std::optional(wanted.end) : std::nullopt;
}

std::vector<Run> RowMap::runs(kernels::Range saved) const {
  std::vector<Run> runs;
  for (std::int64_t index = first_row(saved.begin); index < num_rows_; ++index) {
    const Row at = row(index);
    if (at.from >= saved.end || at.to >= wanted_.end) {
      break;
    }
    const kernels::Range wanted = wanted_in(at, saved);
    if (wanted.size() > 0) {
      runs.push_back({.from = wanted.begin - saved.begin,
                      .to = wanted.begin - at.from + at.to - wanted_.begin,
                      .count = wanted.size()});
    }
  }
  return runs;
}

}  // namespace fsdptrain::checkpoint
