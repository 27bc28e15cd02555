#pragma once

#include "kernels/cuda/strided_place.cuh"

namespace fsdptrain::kernels::cuda {

// Segments of a flat array as a parameter of a kernel, so that no memory of the device has to be
// filled, and waited for, before a launch. Segment has members begin and end.
template <class Segment>
struct SegmentTable {
  static constexpr int kSize = 64;

  int count = 0;
  // first[s]: the elements of the segments before s; first[count]: of all.
  std::int64_t first[kSize + 1];
  Segment segments[kSize];
};

struct SegmentPlace {
  int segment;
  std::int64_t element;  // of the array
};

// Element `index` of all segments one after the other. REQUIRES: index < first[count].
template <class Segment>
FSDPTRAIN_HOST_DEVICE SegmentPlace find_place(const SegmentTable<Segment>& table,
                                              std::int64_t index) {
  int low = 0;
  int high = table.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.first[middle] <= index) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return {low, table.segments[low].begin + (index - table.first[low])};
}

// run(table) for as many tables as the segments fill; those without elements are left out.
template <class Segment, class Run>
void for_each_table(const Segment* segments, std::int64_t num_segments, const Run& run) {
  SegmentTable<Segment> table{};
  for (std::int64_t s = 0; s < num_segments; ++s) {
    if (segments[s].begin < segments[s].end) {
      table.segments[table.count] = segments[s];
      table.first[table.count + 1] = table.first[table.count] + segments[s].end - segments[s].begin;
      ++table.count;
    }
    if (table.count == SegmentTable<Segment>::kSize || (s + 1 == num_segments && table.count > 0)) {
      run(table);
      table.count = 0;
    }
  }
}

}  // namespace fsdptrain::kernels::cuda
