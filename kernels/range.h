#pragma once

#include <cstdint>

namespace fsdptrain::kernels {

// The elements [begin, end) of a flat array.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

}  // namespace fsdptrain::kernels
